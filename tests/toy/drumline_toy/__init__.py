"""The toy: an engine with plain processes as replicas, which its own agent starts."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from drumline.engine.argument_limits import too_long_arguments
from drumline.engine.doctor_checks import MISSING, OK, DoctorCheck, DoctorTarget
from drumline.engine.events import EventQueue
from drumline.engine.output import RunOutput
from drumline.engine.protocol import Capabilities, Engine, Placed, Problem, Session, Site
from drumline.errors import EngineError
from drumline.plan.bind import bind_preparations
from drumline.plan.codec import plan_from_json
from drumline.plan.types import BUILD, Launch, Place, Placement, Plan, Replica, ReplicaId, Resources
from drumline.run.event import Event
from drumline.run.incarnation import Incarnation
from drumline.runtime import prepare
from drumline_toy.remote import ToyRemote
from drumline_toy.run import ToyRun

_HOST = "127.0.0.1"


class ToyEngine:
    """An engine that runs replicas as processes of this machine."""

    capabilities = Capabilities(forms=("json",))

    def __init__(self, site: Site) -> None:
        self._site = site

    async def reach(self, plan: Plan) -> tuple[Plan, Sequence[str]]:
        """Check the server that starts the supervisor, if the spec has one."""
        if folder := plan.options.get("supervisor"):
            await ToyRemote(Path(str(folder)), "0").exchange(b"")
        return plan, ()

    async def place(self, plan: Plan) -> Placement:
        """Give every replica a port that is free now."""
        return self.place_at(plan, _free_ports(plan))

    def place_at(self, plan: Plan, ports: Sequence[int]) -> Placement:
        """Return the places with these ports."""
        return {replica.id: self.place_one(plan, port) for replica, port in zip(plan.replicas, ports, strict=True)}

    def place_one(self, plan: Plan, port: int) -> Place:
        """Return the place of one replica."""
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

    def render(self, plan: Plan, launches: Sequence[Launch], form: str) -> str:
        """Return the orders that the agent would get."""
        del form  # there is only one
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

    def problems(self, plan: Plan, launches: Sequence[Launch]) -> Iterator[Problem]:
        """Refuse arguments that no process can have."""
        del plan
        return map(Problem, too_long_arguments(launches))

    @asynccontextmanager
    async def open(self, run_dir: Path) -> AsyncIterator[Session]:
        """Return the session of a run; its agent exits by itself."""
        yield ToySession(self, run_dir)

    def diagnose(self, target: DoctorTarget) -> Iterator[DoctorCheck]:
        """Yield whether the agent can run on this machine."""
        has_proc = Path("/proc/self/environ").exists()
        yield DoctorCheck("toy", OK if has_proc else MISSING, f"an agent of {sys.executable} in {target.where}")

    def remote_supervisor(self, run_output: RunOutput) -> ToyRemote | None:
        """Return access to the supervisor if the spec names a server that starts it."""
        folder = run_output.plan.options.get("supervisor")
        return ToyRemote(Path(str(folder)), run_output.plan.run) if folder else None

    def remove_files(self, run_output: RunOutput) -> None:
        """Remove the run's folder on the server."""
        if remote := self.remote_supervisor(run_output):
            asyncio.run(remote.forget())

    def describe_output(self, run_output: RunOutput) -> str:
        """Return the folder into which replicas write."""
        home = run_output.plan.options.get("supervisor")
        return (
            f"{home}/runs/{run_output.plan.run}/output"
            if home and not run_output.plan.output
            else str(run_output.folder)
        )


class ToySession:
    """One run on the toy."""

    def __init__(self, engine: ToyEngine, run_dir: Path) -> None:
        self._engine = engine
        plan = plan_from_json((run_dir / "plan.json").read_text("utf-8"))
        nice = plan.options.get("nice", 0)
        assert isinstance(nice, int)
        self._events = EventQueue()
        self._run = ToyRun(run_dir, asyncio.get_running_loop(), self._events.put, nice)

    def events(self) -> AsyncIterator[Event]:
        """Return everything that happens to this run's replicas."""
        return self._events

    async def place(self, plan: Plan, *, attempt: int = 0, keep: Sequence[str] = ()) -> Placed:
        """Give every replica a port that is free now, or the one that it has."""
        del attempt
        ports = [int(address.rpartition(":")[2]) for address in keep]
        return Placed(self._engine.place_at(plan, ports or _free_ports(plan)))

    async def prepare(self, plan: Plan, helper: ReplicaId, *, incarnation: int = 0) -> None:
        """Start the helper that prepares data."""
        if helper == BUILD:
            raise EngineError("the toy builds no environments")
        place = self._engine.place_one(plan, 0)
        item = next(each for each in bind_preparations(plan, place) if each.preparation.id == helper)
        argv = (sys.executable, "-IS", prepare.__file__, item.path, item.partial, *item.preparation.argv)
        replica = Replica(helper, str(helper), argv, {}, Resources())
        self._start([Launch(replica, 0, place, item.env, incarnation)])

    async def start(self, launches: Sequence[Launch]) -> None:
        """Start the replicas that were not started before."""
        self._start(launches)

    def _start(self, launches: Sequence[Launch]) -> None:
        for problem in too_long_arguments(launches):
            raise EngineError(problem)
        for launch in launches:
            for folder in (launch.place.output_dir, launch.place.checkpoint_dir):
                Path(folder).mkdir(parents=True, exist_ok=True)
        self._run.start(launches)

    async def stop(self, incarnations: Sequence[Incarnation], *, grace_seconds: float) -> None:
        """Stop these replicas."""
        self._run.stop(incarnations, grace_seconds)

    async def release(self, *, forced: bool = False) -> None:
        """Stop reading events; the agent exits by itself."""
        del forced
        self._run.release()

    def traces(self) -> Iterator[Path]:
        """Yield the folders into which replicas write."""
        return self._run.traces()


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
