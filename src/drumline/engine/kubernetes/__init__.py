"""Kubernetes: every replica is a pod, whose Job, JobSet or TFJob the cluster looks after.

Placing and rendering talk to nobody. The truth of a run is in the cluster: whoever takes it up lists its pods.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from drumline.engine.extra import needed_by
from drumline.engine.protocol import Capabilities, Engine, Site, Tell
from drumline.errors import EngineError
from drumline.plan.types import BUILD, Launch, Placement, Plan, ReplicaId

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from drumline.engine.health import Health, Patient
    from drumline.engine.kubernetes.code import Code
    from drumline.engine.kubernetes.image.helper import BuildHelper
    from drumline.engine.kubernetes.run import ClusterRun
    from drumline.engine.output import Output, Volumes, Written
    from drumline.run.usage import Usage


class KubernetesEngine:
    """Runs a line as pods of a cluster."""

    capabilities = Capabilities(forms=("yaml", "json"), dates_logs=True)

    def __init__(self, site: Site) -> None:
        self._site = site
        self._plan: Plan | None = None
        self._watched: ClusterRun | None = None
        self._build: BuildHelper | None = None
        self._remarks: tuple[str, ...] = ()

    async def place(self, plan: Plan, *, attempt: int = 0, keep: Sequence[str] = ()) -> Placement:
        """Give every replica the name that its pod will have, which is the same for everybody who asks."""
        del keep
        from drumline.engine.kubernetes.opinion import remarks  # noqa: PLC0415
        from drumline.engine.kubernetes.place import place  # noqa: PLC0415

        self._plan = plan
        self._remarks = tuple(remarks(plan))
        return place(plan, attempt=attempt)

    async def reach(self, plan: Plan) -> Plan:
        """See that the project can be carried, an image built, and that the cluster answers and has the namespace.

        The plan then says which these are, and what the image is called.
        """
        with needed_by("kubernetes", "kubernetes"):
            from drumline.engine.kubernetes.reach import reach  # noqa: PLC0415 - lightkube, which no other command loads

        plan = self._named(plan)
        if BUILD in plan.helpers:
            from drumline.engine.kubernetes.image.helper import require_builder  # noqa: PLC0415 - few build

            require_builder(plan, os.environ)
        self._remarks = (*self._remarks, *self._code(plan).remarks)
        return await reach(plan)

    def remarks(self) -> Sequence[str]:
        """Say what is unwise in a cluster, and what of the project is not carried, as far as somebody looked."""
        return self._remarks

    def render(self, plan: Plan, launches: Sequence[Launch], form: str) -> str:
        """Write the objects that are submitted, but for their owner."""
        from drumline.engine.kubernetes.manifests import objects  # noqa: PLC0415
        from drumline.engine.kubernetes.render import render  # noqa: PLC0415

        plan = self._named(plan)
        return render(objects(plan, launches, self._code(plan)), form)

    def objections(self, launches: Sequence[Launch]) -> Iterator[str]:
        """Refuse what no API server takes, and what the operator of a kind would do otherwise."""
        from drumline.engine.kubernetes.opinion import objections  # noqa: PLC0415

        return objections(self._placed, launches)

    def watch(self, run_dir: Path, loop: AbstractEventLoop, tell: Tell) -> None:
        """Tell of everything that happens to this run's pods from now on."""
        from drumline.engine.kubernetes.run import ClusterRun  # noqa: PLC0415 - who only places has no use for it
        from drumline.plan.codec import plan_from_json  # noqa: PLC0415

        plan = plan_from_json((run_dir / "plan.json").read_text("utf-8"))
        self._watched = ClusterRun(plan, run_dir, self._code, loop, tell)
        if BUILD in plan.helpers:
            from drumline.engine.kubernetes.image.helper import BuildHelper  # noqa: PLC0415 - few build

            self._build = BuildHelper(run_dir, self._site, loop, tell)

    async def prepare(self, plan: Plan, helper: ReplicaId, *, incarnation: int = 0) -> None:
        """Start the Job of a helper; what builds the image is a process of this machine."""
        if helper == BUILD and self._build:
            self._build.start(plan, incarnation=incarnation)
        else:
            self._run.prepare(plan, helper, incarnation)

    async def start(self, launches: Sequence[Launch]) -> None:
        """Create the Jobs of everybody who has none."""
        run = self._run
        for objection in self.objections(launches):
            raise EngineError(objection)
        run.start(self._placed, launches)

    async def stop(
        self,
        replicas: Sequence[ReplicaId],
        attempt: int,
        *,
        grace_seconds: float,
        incarnations: Mapping[ReplicaId, int] = MappingProxyType({}),
    ) -> None:
        """Delete the pods of these, as gently as that."""
        run = self._run
        from drumline.engine.incarnation import Incarnation  # noqa: PLC0415

        if self._build and BUILD in replicas:
            self._build.stop(incarnations.get(BUILD, 0), grace_seconds=grace_seconds)
        others = [each for each in replicas if each != BUILD]
        run.stop([Incarnation(each, attempt, incarnations.get(each, 0)) for each in others], grace_seconds)

    def close(self) -> None:
        """Nothing was claimed."""

    async def release(self, *, forced: bool = False) -> None:
        """Remove everything of the run from the cluster, but for its claims."""
        del forced
        if self._watched:
            await self._watched.release()

    async def usage(self, *, watched: bool) -> Sequence[Usage]:
        """What the cluster's metrics say, or the kubelets; where nobody does, nothing is known."""
        return self._run.usage(watched=watched)

    def examine(self, patient: Patient) -> Iterable[Health]:
        """Examine the cluster."""
        with needed_by("kubernetes", "kubernetes"):
            from drumline.engine.kubernetes.doctor import examine  # noqa: PLC0415 - few commands need it

        return examine(patient)

    def open_output(self, written: Written) -> Output:
        """Return access to the volumes of a run."""
        with needed_by("kubernetes", "kubernetes"):
            from drumline.engine.kubernetes.output import open_output  # noqa: PLC0415 - few commands need it

        return open_output(written)

    def describe_output(self, written: Written) -> str:
        """Return where the output is."""
        from drumline.engine.kubernetes.remains import describe_output  # noqa: PLC0415 - few commands need it

        return describe_output(written.plan)

    def remains(self, written: Written) -> Iterator[str]:
        """Yield what stays when the run is removed."""
        from drumline.engine.kubernetes.remains import remains  # noqa: PLC0415 - few commands need it

        return remains(written.plan)

    def open_volumes(self, written: Written) -> Volumes:
        """Return access to the claims that were made for a run."""
        with needed_by("kubernetes", "kubernetes"):
            from drumline.engine.kubernetes.output import open_output  # noqa: PLC0415 - few commands need it

        return open_output(written)

    def removal_seconds(self) -> float:
        """Return how long the objects of a run may take to go; a node that does not answer takes longer."""
        return 30.0

    def traces(self) -> Iterator[Path]:
        """The folders into which logs come."""
        yield from self._run.traces()
        if self._build:
            yield from self._build.traces()

    def _code(self, plan: Plan) -> Code:
        from drumline.engine.kubernetes.code import pack  # noqa: PLC0415
        from drumline.engine.kubernetes.planned import cluster_of  # noqa: PLC0415
        from drumline.engine.project.own import own_folders  # noqa: PLC0415

        return pack(self._site.directory if cluster_of(plan).code else None, without=own_folders(plan, self._site))

    def _named(self, plan: Plan) -> Plan:
        """The same, with the name of an image that is to be built."""
        if BUILD not in plan.helpers:
            return plan
        from drumline.engine.kubernetes.image.helper import named  # noqa: PLC0415 - few build

        return named(plan, self._site.directory)

    @property
    def _placed(self) -> Plan:
        if self._plan is None:
            raise AssertionError("a line is placed before it is started")
        return self._plan

    @property
    def _run(self) -> ClusterRun:
        if self._watched is None:
            raise AssertionError("an engine is watched before anything is started")
        return self._watched


def make_engine(site: Site) -> Engine:
    """Return the engine for clusters."""
    return KubernetesEngine(site)
