"""Replicas that are no processes but play an act: for tests, and for whoever wants to see what drumline makes of one.

Such a replica's command is its act, as data. All of a life follows from that and from the moments at which it began
and was told to stop, which are in its trace; so nothing has to run, and whoever takes a life up again, an hour later,
works out what has become of it meanwhile. Time is the loop's, and passes as fast as that likes.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType

from drumline.engine.events import EventQueue
from drumline.engine.fake.behavior import FakeBehavior, behaviors_of, command_of
from drumline.engine.fake.stage import Stage
from drumline.engine.protocol import Capabilities, Engine, Placed, Problem, Session, Site
from drumline.errors import EngineError
from drumline.plan.bind import bind_preparations
from drumline.plan.types import TENSORBOARD, Launch, Place, Placement, Plan, Replica, ReplicaId, Resources
from drumline.run.event import Event, Exit, ReplicaExited, TensorBoardServed
from drumline.run.quiet import Pulse
from drumline.run.rendezvous import Sockets
from drumline.run.traces import STACKS
from drumline.run.usage import Usage

PORT = 2222


class FakeEngine:
    """Plays replicas."""

    capabilities = Capabilities(forms=("json",))

    def __init__(self, site: Site) -> None:
        self._site = site

    async def place(self, plan: Plan) -> Placement:
        """Give every replica a host of its own, which does not exist, and has whatever is asked of it."""
        return self.place_at(
            plan, [f"{each.id.role}-{each.id.index}.fake:{each.port or PORT}" for each in plan.replicas]
        )

    def place_at(self, plan: Plan, addresses: Sequence[str]) -> Placement:
        """Return the places with these addresses."""
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
        """Write every replica's act and variables."""
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
        """Refuse acts that cannot be read."""
        del plan
        return _find_problems(launches)

    @asynccontextmanager
    async def open(self, run_dir: Path) -> AsyncIterator[Session]:
        """Return the session of a run."""
        yield FakeSession(self, run_dir)


class FakeSession:
    """Plays the replicas of one run."""

    def __init__(self, engine: FakeEngine, run_dir: Path) -> None:
        self._engine = engine
        self._events = EventQueue()
        self._stage = Stage(run_dir, asyncio.get_running_loop(), self._events.put)
        self._addresses: dict[ReplicaId, str] = {}

    def events(self) -> AsyncIterator[Event]:
        """Return everything that happens to the replicas."""
        return self._events

    async def place(self, plan: Plan, *, attempt: int = 0, keep: Sequence[str] = ()) -> Placed:
        """Give every replica a host of its own."""
        del attempt
        placement = self._engine.place_at(plan, keep) if keep else await self._engine.place(plan)
        self._addresses = {name: place.address for name, place in placement.items()}
        return Placed(placement)

    async def prepare(self, plan: Plan, helper: ReplicaId, *, incarnation: int = 0) -> None:
        """Let the helper begin that would make this data; every environment that one could want is there."""
        if plan.environment and helper == plan.environment.id:
            found = Exit(0, message="nothing has to be built for whoever only plays")
            self._stage.tell(ReplicaExited(helper, 0, incarnation, found, self._stage.loop.time()))
            return
        place = self._engine.place_one(plan, "helper.fake", "0")
        item = next(each for each in bind_preparations(plan, place) if each.preparation.id == helper)
        replica = Replica(helper, str(helper), item.preparation.argv, {}, Resources())
        await self.start([Launch(replica, 0, place, item.env, incarnation)])

    async def serve(self, plan: Plan, *, incarnation: int = 0) -> None:
        """Let TensorBoard begin, which shows nothing, and say where it would be."""
        act = FakeBehavior(exit=None, exit_on_term=Exit(code=0))
        replica = Replica(TENSORBOARD, str(TENSORBOARD), command_of(act), {}, Resources())
        await self.start([Launch(replica, 0, self._engine.place_one(plan, "tensorboard.fake", "0"), {}, incarnation)])
        if not self._stage.lives[TENSORBOARD, 0, incarnation].told_end:
            self._stage.tell(TensorBoardServed("http://tensorboard.fake/"))

    async def start(self, launches: Sequence[Launch]) -> None:
        """Let everybody begin who has not begun before; who has plays on."""
        for problem in _find_problems(launches):
            raise EngineError(problem.message)
        wanted = {(each.replica.id, each.attempt, each.incarnation): each for each in launches}
        stage = self._stage
        stage.play_all([stage.take_up(*key) or stage.begin(launch) for key, launch in wanted.items()])

    async def stop(
        self,
        replicas: Sequence[ReplicaId],
        attempt: int,
        *,
        grace_seconds: float,
        incarnations: Mapping[ReplicaId, int] = MappingProxyType({}),
    ) -> None:
        """Ask these to end, insist after the grace; who never began has ended by that."""
        keys = [(replica, attempt, incarnations.get(replica, 0)) for replica in replicas]
        stage = self._stage
        lives = [stage.take_up(*key) or stage.miss(*key) for key in keys]
        stage.play_all(lives)  # whoever had ended before did not end by this
        for life in lives:
            if grace_seconds <= 0:
                stage.kill(life)
            else:
                stage.loop.call_later(grace_seconds, partial(stage.kill, life))
                stage.term(life)

    async def release(self, *, forced: bool = False) -> None:
        """Do nothing: nothing was claimed."""

    async def usage(self, *, watched: bool) -> Sequence[Usage]:
        """Say for how long everybody has played; that computes nothing, and takes no memory."""
        del watched
        found = []
        for life in self._stage.lives.values():
            if life.told_start and not life.measured:
                life.measured = life.told_end
                at = life.end().at_seconds if life.told_end else self._stage.loop.time()
                identity = life.replica, life.attempt, life.incarnation
                found.append(Usage(*identity, at, life.started, cpu_seconds=0.0, memory_bytes=0))
        return found

    async def pulses(self) -> Sequence[Pulse]:
        """Who plays works all the time, unless its act is idle."""
        now = self._stage.loop.time()
        return [
            Pulse(life.replica, life.attempt, life.incarnation, 0.0 if life.act.is_idle else now - life.started)
            for life in self._stage.living()
        ]

    async def sockets(self) -> Sequence[Sockets]:
        """Everybody listens whose act does, and has called everybody."""
        found, everyone = [], frozenset(self._addresses.values())
        for life in self._stage.living():
            own = self._addresses.get(life.replica, ":0").rpartition(":")[2]
            heard = (frozenset((int(own),)), everyone) if life.act.listens else (frozenset[int](), frozenset[str]())
            found.append(Sockets(life.replica, *heard))
        return found

    async def stacks(
        self,
        replicas: Sequence[ReplicaId],
        attempt: int,
        *,
        gently: bool,
        incarnations: Mapping[ReplicaId, int] = MappingProxyType({}),
    ) -> None:
        """Write down what the acts say of it."""
        del gently
        keys = [(replica, attempt, incarnations.get(replica, 0)) for replica in replicas]
        lives = [life for key in keys if (life := self._stage.take_up(*key))]
        self._stage.play_all(lives)
        for life in lives:
            if not life.told_end and life.act.stacks:
                (life.folder / STACKS).write_text(life.act.stacks)

    def traces(self) -> Iterator[Path]:
        """The folders of all lives that go on, and of those that ended since this was asked last."""
        for life in self._stage.lives.values():
            if not life.looked_at:
                life.looked_at = life.told_end
                yield life.folder


def make_engine(site: Site) -> Engine:
    """Return the engine that plays."""
    return FakeEngine(site)


def _find_problems(launches: Sequence[Launch]) -> Iterator[Problem]:
    for launch in launches:
        try:
            behaviors_of(launch.replica.argv)
        except ValueError as error:
            yield Problem(f"the act of {launch.replica.id} cannot be read: {error}")
