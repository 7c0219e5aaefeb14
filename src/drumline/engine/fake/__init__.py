"""The engine `fake`, for tests: replicas are no processes, and behave as their commands describe.

The command of such a replica is its behavior, as data. All its events follow from the behavior and from the times of
its start and stop, which are in its trace. So no process has to run, and a later session can compute its state. Times
are those of the event loop.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from drumline.engine.events import EventQueue
from drumline.engine.fake.behavior import FakeBehavior, behaviors_of, command_of
from drumline.engine.fake.replica import FakeReplica
from drumline.engine.fake.replicas import FakeReplicas
from drumline.engine.protocol import Capabilities, Engine, Placed, Problem, Session, Site
from drumline.errors import EngineError
from drumline.plan.bind import bind_preparations
from drumline.plan.types import TENSORBOARD, Launch, Place, Placement, Plan, Replica, ReplicaId, Resources
from drumline.run.event import Event, Exit, ReplicaExited, TensorBoardServed
from drumline.run.idle import WorkSample
from drumline.run.incarnation import Incarnation
from drumline.run.rendezvous import Sockets
from drumline.run.traces import STACKS
from drumline.run.usage import Usage

PORT = 2222


class FakeEngine:
    """Simulates replicas."""

    capabilities = Capabilities(forms=("json",))

    def __init__(self, site: Site) -> None:
        self._site = site

    async def place(self, plan: Plan) -> Placement:
        """Return a host for every replica; the hosts do not exist, and any resources fit on them."""
        return self.place_at(
            plan, [f"{each.id.role}-{each.id.index}.fake:{each.port or PORT}" for each in plan.replicas]
        )

    def place_at(self, plan: Plan, addresses: Sequence[str]) -> Placement:
        """Return the places of the replicas at these addresses, which are in the order of the plan."""
        return {
            replica.id: self.place_one(plan, *address.rsplit(":", 1))
            for replica, address in zip(plan.replicas, addresses, strict=True)
        }

    def place_one(self, plan: Plan, host: str, port: str) -> Place:
        """Return the place of one replica."""
        output_dir = self._folder(plan.output or str(self._site.home / "runs" / plan.run / "output"))
        return Place(
            host=host.strip("[]"),
            port=int(port),
            workdir=self._folder(plan.workdir),
            output_dir=output_dir,
            checkpoint_dir=self._folder(plan.checkpoint or f"{output_dir}/checkpoint"),
            data_dirs=tuple(self._folder(data.path) for data in plan.data),
        )

    def _folder(self, path: str) -> str:
        return os.path.normpath(self._site.directory / path)

    def render(self, plan: Plan, launches: Sequence[Launch], form: str) -> str:
        """Return every replica's behavior and variables, as JSON."""
        del form  # there is one
        replicas = [
            {
                "id": str(launch.replica.id),
                "argv": list(launch.replica.argv),
                "env": {name: str(value) for name, value in launch.env.items()},
            }
            for launch in launches
        ]
        return json.dumps({"v": 1, "run": plan.run, "name": plan.name, "replicas": replicas}, indent=2) + "\n"

    def problems(self, plan: Plan, launches: Sequence[Launch]) -> Iterator[Problem]:
        """Yield a problem for each behavior that cannot be read."""
        del plan
        return _find_problems(launches)

    @asynccontextmanager
    async def open(self, run_dir: Path) -> AsyncIterator[Session]:
        """Return the session of a run."""
        yield FakeSession(self, run_dir)


class FakeSession:
    """Simulates the replicas of one run."""

    def __init__(self, engine: FakeEngine, run_dir: Path) -> None:
        self._engine = engine
        self._events = EventQueue()
        self._loop = asyncio.get_running_loop()
        self._replicas = FakeReplicas(run_dir, self._loop, self._events.put)
        self._addresses: dict[ReplicaId, str] = {}

    def events(self) -> AsyncIterator[Event]:
        """Return the events of the replicas."""
        return self._events

    async def place(self, plan: Plan, *, attempt: int = 0, keep: Sequence[str] = ()) -> Placed:
        """Return a host for every replica."""
        del attempt
        placement = self._engine.place_at(plan, keep) if keep else await self._engine.place(plan)
        self._addresses = {name: place.address for name, place in placement.items()}
        return Placed(placement)

    async def prepare(self, plan: Plan, helper: ReplicaId, *, incarnation: int = 0) -> None:
        """Start a fake helper for a preparation; for an environment, report at once that it is built."""
        if plan.environment and helper == plan.environment.id:
            found = Exit(0, message="fake replicas need no build")
            self._events.put(ReplicaExited(helper, 0, incarnation, found, self._loop.time()))
            return
        place = self._engine.place_one(plan, "helper.fake", "0")
        item = next(each for each in bind_preparations(plan, place) if each.preparation.id == helper)
        replica = Replica(helper, str(helper), item.preparation.argv, {}, Resources())
        await self.start([Launch(replica, 0, place, item.env, incarnation)])

    async def serve(self, plan: Plan, *, incarnation: int = 0) -> None:
        """Start a fake TensorBoard, and report an address."""
        behavior = FakeBehavior(exit=None, exit_on_term=Exit(code=0))
        replica = Replica(TENSORBOARD, str(TENSORBOARD), command_of(behavior), {}, Resources())
        await self.start([Launch(replica, 0, self._engine.place_one(plan, "tensorboard.fake", "0"), {}, incarnation)])
        if not self._replicas.tracker.find(Incarnation(TENSORBOARD, 0, incarnation)).is_over:
            self._events.put(TensorBoardServed("http://tensorboard.fake/"))

    async def start(self, launches: Sequence[Launch]) -> None:
        """Start the replicas of these launches that were not started before."""
        for problem in _find_problems(launches):
            raise EngineError(problem.message)
        self._replicas.start(launches)

    async def stop(self, incarnations: Sequence[Incarnation], *, grace_seconds: float) -> None:
        """Stop these incarnations; one that never began ends now."""
        self._replicas.stop(incarnations, grace_seconds)

    async def release(self, *, forced: bool = False) -> None:
        """Do nothing: nothing was claimed."""

    async def usage(self, *, watched: bool) -> Sequence[Usage]:
        """Return how long each replica has run, with no CPU time and no memory."""
        del watched
        found = []
        for each in self._replicas.tracker:
            if each.take_measured():
                at = each.end.at_seconds if each.end else self._loop.time()
                identity = each.id.replica, each.id.attempt, each.id.incarnation
                found.append(Usage(*identity, at, each.started, cpu_seconds=0.0, memory_bytes=0))
        return found

    async def work_samples(self) -> Sequence[WorkSample]:
        """Return full activity for each replica, unless its behavior is idle."""
        now = self._loop.time()
        return [
            WorkSample(
                each.id.replica,
                each.id.attempt,
                each.id.incarnation,
                0.0 if each.behavior.is_idle else now - each.started,
            )
            for each in self._running()
        ]

    async def sockets(self) -> Sequence[Sockets]:
        """Return the port of each listening replica, and connections to all replicas."""
        found, addresses = [], frozenset(self._addresses.values())
        for each in self._running():
            own = self._addresses.get(each.id.replica, ":0").rpartition(":")[2]
            listens = (
                (frozenset((int(own),)), addresses) if each.behavior.listens else (frozenset[int](), frozenset[str]())
            )
            found.append(Sockets(each.id.replica, *listens))
        return found

    def _running(self) -> list[FakeReplica]:
        return [each for each in self._replicas.tracker if each.is_running and not each.id.replica.is_helper]

    async def stacks(self, incarnations: Sequence[Incarnation], *, gently: bool) -> None:
        """Write the stacks that the behaviors of these incarnations contain."""
        del gently
        for each in self._replicas.resume(incarnations):
            if not each.is_over and each.behavior.stacks:
                (each.folder / STACKS).write_text(each.behavior.stacks)

    def traces(self) -> Iterator[Path]:
        """Yield the trace folders of replicas that run, and of those that ended since the last call."""
        return self._replicas.tracker.traces()


def make_engine(site: Site) -> Engine:
    """Return the engine for fake replicas."""
    return FakeEngine(site)


def _find_problems(launches: Sequence[Launch]) -> Iterator[Problem]:
    for launch in launches:
        try:
            behaviors_of(launch.replica.argv)
        except ValueError as error:
            yield Problem(f"the behavior of {launch.replica.id} cannot be read: {error}")
