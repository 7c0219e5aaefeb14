"""Kubernetes: every replica is a pod, managed by a Job, JobSet or TFJob.

Placing and rendering contact no cluster. The state of a run is read from the cluster: a session lists its pods.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from drumline.engine.extra import needed_by
from drumline.engine.protocol import Capabilities, Engine, Problem, Session, Site
from drumline.plan.types import BUILD, Launch, Placement, Plan

if TYPE_CHECKING:
    from drumline.engine.doctor_checks import DoctorCheck, DoctorTarget
    from drumline.engine.kubernetes.project import PackedProject
    from drumline.engine.output import Output, RunOutput, Volumes


class KubernetesEngine:
    """Runs replicas as pods of a cluster."""

    capabilities = Capabilities(forms=("yaml", "json"), dates_logs=True)

    def __init__(self, site: Site) -> None:
        self._site = site

    async def place(self, plan: Plan) -> Placement:
        """Return the DNS name that the pod of each replica will have."""
        from drumline.engine.kubernetes.place import place  # noqa: PLC0415

        return place(plan, attempt=0)

    async def reach(self, plan: Plan) -> tuple[Plan, Sequence[str]]:
        """Check the project, the builder and the cluster; return the plan with context, namespace and image name.

        Also return warnings about the project.
        """
        with needed_by("kubernetes", "kubernetes"):
            from drumline.engine.kubernetes.permissions import check_cluster  # noqa: PLC0415 - loads lightkube

        plan = self._named(plan)
        if BUILD in plan.helpers:
            from drumline.engine.kubernetes.image.helper import require_builder  # noqa: PLC0415 - few build

            require_builder(plan, os.environ)
        return await check_cluster(plan), self._packed(plan).warnings

    def render(self, plan: Plan, launches: Sequence[Launch], form: str) -> str:
        """Return the objects that are submitted, without owner references."""
        from drumline.engine.kubernetes.manifests import objects, render  # noqa: PLC0415

        plan = self._named(plan)
        return render(objects(plan, launches, self._packed(plan).contents), form)

    def problems(self, plan: Plan, launches: Sequence[Launch]) -> Iterator[Problem]:
        """Yield a problem for what the cluster would refuse or an operator would do differently, then warnings."""
        from drumline.engine.kubernetes.validate import find_problems, find_warnings  # noqa: PLC0415

        yield from map(Problem, find_problems(plan, launches))
        for warning in find_warnings(plan):
            yield Problem(warning, is_warning=True)

    @asynccontextmanager
    async def open(self, run_dir: Path) -> AsyncIterator[Session]:
        """Yield the session of a run, which watches its pods; disconnect from the cluster at the end of the block."""
        from drumline.engine.kubernetes.session import ClusterSession  # noqa: PLC0415 - not needed to place
        from drumline.plan.codec import plan_from_json  # noqa: PLC0415

        plan = plan_from_json((run_dir / "plan.json").read_text("utf-8"))
        session = ClusterSession(plan, run_dir, self._site)
        try:
            yield session
        finally:
            await session.disconnect()

    def diagnose(self, target: DoctorTarget) -> Iterable[DoctorCheck]:
        """Return the checks of the cluster."""
        with needed_by("kubernetes", "kubernetes"):
            from drumline.engine.kubernetes.doctor import diagnose  # noqa: PLC0415 - few commands need it

        return diagnose(target)

    def open_output(self, run_output: RunOutput) -> Output:
        """Return access to the volumes of a run."""
        with needed_by("kubernetes", "kubernetes"):
            from drumline.engine.kubernetes.output import ClusterOutput  # noqa: PLC0415 - few commands need it

        return ClusterOutput(run_output)

    def describe_output(self, run_output: RunOutput) -> str:
        """Return a text about where the output is and how to keep or fetch it."""
        from drumline.engine.kubernetes.claims import describe_output  # noqa: PLC0415 - few commands need it

        return describe_output(run_output.plan)

    def remains(self, run_output: RunOutput) -> Iterator[str]:
        """Yield a sentence about each claim that stays when the run is removed."""
        from drumline.engine.kubernetes.claims import describe_kept_claims  # noqa: PLC0415 - few commands need it

        return describe_kept_claims(run_output.plan)

    def open_volumes(self, run_output: RunOutput) -> Volumes:
        """Return access to the claims that were made for a run."""
        with needed_by("kubernetes", "kubernetes"):
            from drumline.engine.kubernetes.output import ClusterOutput  # noqa: PLC0415 - few commands need it

        return ClusterOutput(run_output)

    def removal_seconds(self) -> float:
        """Return how long the removal of a run's objects usually takes."""
        return 30.0

    def _packed(self, plan: Plan) -> PackedProject:
        from drumline.engine.kubernetes.project import pack_project  # noqa: PLC0415

        return pack_project(plan, self._site)

    def _named(self, plan: Plan) -> Plan:
        """Return the plan with the name of the image that will be built."""
        if BUILD not in plan.helpers:
            return plan
        from drumline.engine.kubernetes.image.helper import with_image_name  # noqa: PLC0415 - few build

        return with_image_name(plan, self._site.directory)


def make_engine(site: Site) -> Engine:
    """Return the engine for clusters."""
    return KubernetesEngine(site)
