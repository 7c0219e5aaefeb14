"""A toy: an engine whose replicas are plain processes that its own agent starts."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from drumline.engine.health import FINE, MISSING, Health, Patient
from drumline.engine.output import Written
from drumline.engine.protocol import Capabilities, Engine, Site, Tell
from drumline.engine.strings import too_long
from drumline.errors import EngineError
from drumline.plan.bind import bind_preparations
from drumline.plan.codec import plan_from_json
from drumline.plan.types import BUILD, Launch, Place, Placement, Plan, Replica, ReplicaId, Resources
from drumline.runtime import prepare
from drumline_toy.remote import ToyRemote
from drumline_toy.run import Life, ToyRun

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

_HOST = "127.0.0.1"


class ToyEngine:
    """Runs replicas as processes of this machine."""

    capabilities = Capabilities(forms=("json",))

    def __init__(self, site: Site) -> None:
        self._site = site
        self._watched: ToyRun | None = None

    async def reach(self, plan: Plan) -> Plan:
        """Ask the server that is to start the supervisor, if there is to be one."""
        if folder := plan.options.get("supervisor"):
            await ToyRemote(Path(str(folder)), "0").exchange(b"")
        return plan

    async def place(self, plan: Plan, *, attempt: int = 0, keep: Sequence[str] = ()) -> Placement:
        """Give every replica a port that is free now."""
        del attempt
        ports = [int(address.rpartition(":")[2]) for address in keep] or _free_ports(plan)
        return {replica.id: self._place(plan, port) for replica, port in zip(plan.replicas, ports, strict=True)}

    def _place(self, plan: Plan, port: int) -> Place:
        output = self._folder(plan.output or str(self._site.home / "runs" / plan.run / "output"))
        return Place(
            host=_HOST,
            port=port,
            workdir=self._folder(plan.workdir),
            output_dir=output,
            checkpoint_dir=self._folder(plan.checkpoint or f"{output}/checkpoint"),
            python_dir=self._site.python_dir,
            data_dirs=tuple(self._folder(data.path) for data in plan.data),
        )

    def _folder(self, path: str) -> str:
        return os.path.normpath(self._site.directory / path)

    def remarks(self) -> Sequence[str]:
        """Return nothing: all is as one would think."""
        return ()

    def render(self, plan: Plan, launches: Sequence[Launch], form: str) -> str:
        """Write the orders that the agent would get."""
        del form  # there is one
        replicas = [
            {
                "id": str(launch.replica.id),
                "argv": launch.replica.argv,
                "env": {name: str(value) for name, value in launch.env.items()},
                **plan.options,
            }
            for launch in launches
        ]
        return json.dumps({"run": plan.run, "name": plan.name, "replicas": replicas}, indent=2) + "\n"

    def objections(self, launches: Sequence[Launch]) -> Iterator[str]:
        """Refuse what no process can be given."""
        return too_long(launches)

    def watch(self, run_dir: Path, loop: AbstractEventLoop, tell: Tell) -> None:
        """Report everything that happens to this run's replicas from now on."""
        plan = plan_from_json((run_dir / "plan.json").read_text("utf-8"))
        nice = plan.options.get("nice", 0)
        assert isinstance(nice, int)
        self._watched = ToyRun(run_dir, loop, tell, nice)

    async def prepare(self, plan: Plan, helper: ReplicaId, *, incarnation: int = 0) -> None:
        """Start the helper that makes data."""
        if helper == BUILD:
            raise EngineError("the toy builds no environments")
        place = self._place(plan, 0)
        item = next(each for each in bind_preparations(plan, place) if each.preparation.id == helper)
        argv = (sys.executable, "-IS", prepare.__file__, item.path, item.partial, *item.preparation.argv)
        replica = Replica(helper, str(helper), argv, {}, Resources())
        self._start([Launch(replica, 0, place, item.env, incarnation)])

    async def start(self, launches: Sequence[Launch]) -> None:
        """Have all started that were not before."""
        self._start(launches)

    def _start(self, launches: Sequence[Launch]) -> None:
        run = self._run
        for objection in self.objections(launches):
            raise EngineError(objection)
        for launch in launches:
            for folder in (launch.place.output_dir, launch.place.checkpoint_dir):
                Path(folder).mkdir(parents=True, exist_ok=True)
            run.start(launch)
        run.report()

    async def stop(
        self,
        replicas: Sequence[ReplicaId],
        attempt: int,
        *,
        grace_seconds: float,
        incarnations: Mapping[ReplicaId, int] = MappingProxyType({}),
    ) -> None:
        """Have these stopped."""
        run = self._run
        for replica in replicas:
            run.stop(Life(replica, attempt, incarnations.get(replica, 0)), grace_seconds)
        run.report()

    def close(self) -> None:
        """Do nothing: a placement claims nothing."""

    async def release(self, *, forced: bool = False) -> None:
        """Look no more; the agent leaves by itself."""
        del forced
        if self._watched:
            self._watched.release()

    def examine(self, patient: Patient) -> Iterator[Health]:
        """Yield whether the agent could run here."""
        has_proc = Path("/proc/self/environ").exists()
        yield Health("toy", FINE if has_proc else MISSING, f"an agent of {sys.executable} in {patient.where}")

    def remote_supervisor(self, written: Written) -> ToyRemote | None:
        """Return access to the supervisor if the spec names a server that starts it."""
        folder = written.plan.options.get("supervisor")
        return ToyRemote(Path(str(folder)), written.plan.run) if folder else None

    def forget(self, written: Written) -> None:
        """Have the run's folder removed on the server."""
        if remote := self.remote_supervisor(written):
            asyncio.run(remote.forget())

    def describe_output(self, written: Written) -> str:
        """Return the folder into which replicas write."""
        home = written.plan.options.get("supervisor")
        return f"{home}/runs/{written.plan.run}/output" if home and not written.plan.output else str(written.folder)

    def traces(self) -> Iterator[Path]:
        """Yield the folders into which replicas write."""
        return self._run.traces()

    @property
    def _run(self) -> ToyRun:
        if self._watched is None:
            raise AssertionError("an engine is watched before anything is started")
        return self._watched


def make_engine(site: Site) -> Engine:
    """Return the toy."""
    return ToyEngine(site)


def _free_ports(plan: Plan) -> list[int]:
    """Return the ports that the spec names, and free ones for the others."""
    probes = [socket.socket() for _ in plan.replicas]
    try:
        for probe in probes:
            probe.bind((_HOST, 0))
        return [each.port or probe.getsockname()[1] for each, probe in zip(plan.replicas, probes, strict=True)]
    finally:
        for probe in probes:
            probe.close()
