"""What every engine can do, and what it needs to know of the world."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from drumline.plan.types import Launch, Placement, Plan, ReplicaId
from drumline.record import Record
from drumline.run.event import Event

if TYPE_CHECKING:
    from drumline.run.drill import Harm
    from drumline.run.quiet import Pulse
    from drumline.run.rendezvous import Sockets
    from drumline.run.usage import Usage  # nobody waits for it who only starts a line


class Capacity(Record):
    """What a machine has to give; a GPU is named as CUDA_VISIBLE_DEVICES names it."""

    cpus: float
    memory_bytes: int
    gpus: tuple[str, ...] = ()


class MustWait(Exception):  # noqa: N818
    """There is no room for a line yet; says for what it waits, and behind whom."""


class Interpreter(Record):
    """A Python, and why it was chosen."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"

    @property
    def folder(self) -> str:
        """Where it and the programs of its environment are."""
        return self.path.rpartition("/")[0]


class Site(Record):
    """The world as an engine may see it: whose folder, which machine."""

    directory: Path  # of the spec; relative paths in it start here
    home: Path
    cores: int
    python_dir: str | None = None  # to be put in front of PATH, where `python` would be another one
    capacity: Capacity | None = None  # None is for the engine to find out, when somebody asks
    cache: Path | None = None  # for what can be made again, and is shared by all homes of a user
    python: Interpreter | None = None  # what `python` means there; None is drumline's own


class Capabilities(Record):
    """What differs between engines, as data."""

    forms: tuple[str, ...]  # in which `render` can write, the usual one first
    dates_logs: bool = False  # its logs come with the times of their lines, and it writes the marks beside them
    launching_python: bool = False  # `python` means what it means where the run is launched
    tensorboard: bool = False  # whether it can stand beside a line, whose output is then a folder of this machine


class Loop(Protocol):
    """What a supervisor's loop does for an engine."""

    def on_readable(self, descriptor: int, call: Callable[[], object]) -> None:
        """Call this whenever the descriptor can be read."""
        ...

    def forget(self, descriptor: int) -> None:
        """Look at this descriptor no more."""
        ...

    def call_later(self, seconds: float, call: Callable[[], object]) -> None:
        """Call this once, after so long."""
        ...

    def now(self) -> float:
        """Seconds of a clock that never goes back and is the same for every loop of this machine."""
        ...


Tell = Callable[[Event], None]


class Saboteur(Protocol):
    """Hurts replicas from outside, on purpose, so that their supervisor has to notice by itself: for drills."""

    def objection(self, plan: Plan, harm: Harm) -> str | None:
        """Why nobody of this line can be hurt so; None if that can be done."""
        ...

    def hurt(self, traces: Path, replica: ReplicaId, harm: Harm) -> None:
        """Do this to the life with these traces; raise EngineError if it does not live."""
        ...

    def heal(self, traces: Path, replica: ReplicaId, harm: Harm) -> None:
        """Undo that, as far as it can be undone and somebody is there."""
        ...


class Engine(Protocol):
    """A place that can run a line."""

    capabilities: Capabilities

    def place(self, plan: Plan, *, attempt: int = 0, keep: Sequence[str] = ()) -> Placement:
        """Say where each replica will be reached and write; raise InputError if the plan cannot fit there.

        `keep` are the addresses of an attempt that is already under way. For a supervisor, what the plan asks for is
        claimed; raise MustWait while others have it, and tell RoomFound when it is to be had.
        """
        ...

    def reach(self, plan: Plan) -> Plan:
        """See that the place is there in which the plan would run, and that it may; raise EngineError if not.

        The plan then says which place that is, so that whoever takes the run up looks nowhere else.
        """
        ...

    def shortages(self, plan: Plan) -> Iterator[str]:
        """Say what the plan asks for beyond all that there is here."""
        ...

    def remarks(self) -> Sequence[str]:
        """Say what the last placement does otherwise than one would think."""
        ...

    def render(self, plan: Plan, launches: Sequence[Launch], form: str) -> str:
        """Write what would be started, exactly; the first half of starting it."""
        ...

    def objections(self, launches: Sequence[Launch]) -> Iterator[str]:
        """Say what this engine would refuse to start."""
        ...

    def watch(self, run_dir: Path, loop: Loop, tell: Tell) -> None:
        """Tell of everything that happens to this run's replicas from now on; comes before `start` and `stop`.

        Each start and each end is told once. Of lives that an earlier engine began, those that `start` and `stop`
        name are told of, the ends that came in between in the order in which they came.
        """
        ...

    def prepare(self, plan: Plan, helper: ReplicaId, *, incarnation: int = 0) -> None:
        """Start the helper that builds or makes something for this line, if nobody did.

        It is told of as a replica of attempt 0. Of one that has nothing to do, only that it has ended well is told,
        and what it found.
        """
        ...

    def serve(self, plan: Plan, *, incarnation: int = 0) -> None:
        """Start TensorBoard over this line's output, if nobody did; raise EngineError if that cannot be.

        It is told of as a replica of attempt 0, and where it is once it answers. Only for engines that are capable.
        """
        ...

    def start(self, launches: Sequence[Launch]) -> None:
        """Start whoever has not been started before, and return; that they run, and how they end, is told.

        Raise EngineError if that cannot be; what was claimed for those who were not started is given back.
        """
        ...

    def stop(
        self,
        replicas: Sequence[ReplicaId],
        attempt: int,
        *,
        grace_seconds: float,
        incarnations: Mapping[ReplicaId, int] = MappingProxyType({}),
    ) -> None:
        """Begin to stop these, gently for so long; each end is told, also of who never started or is not known.

        It is the first life in this attempt of everybody whose incarnation is not given.

        Whoever had ended before is told as it ended. Asked again without grace, it is meant.
        """
        ...

    def close(self) -> None:
        """Give back what a placement claimed and no start took over."""
        ...

    def usage(self, *, watched: bool) -> Iterator[Usage]:
        """What every life uses that goes on, and once more what each used that has ended since this was asked last.

        While nobody is `watched` for, it should cost next to nothing. An engine that cannot tell has nothing to say.
        """
        ...

    def pulses(self) -> Iterator[Pulse]:
        """What every life that goes on has done so far, by which to tell whether it does anything."""
        ...

    def sockets(self) -> Iterator[Sockets]:
        """On which ports every life that goes on listens, and whom it has called."""
        ...

    def stacks(
        self,
        replicas: Sequence[ReplicaId],
        attempt: int,
        *,
        gently: bool,
        then: Callable[[], object],
        incarnations: Mapping[ReplicaId, int] = MappingProxyType({}),
    ) -> None:
        """Begin to save the stacks of these with their traces; call `then` when that is done, or cannot be.

        `gently` nobody is harmed by it, and who cannot be looked at so has none. Else it may end them, who are about
        to be stopped anyway.
        """
        ...

    def release(self, *, forced: bool = False) -> None:
        """Give back everything that was claimed for the run; it is over.

        Where the user has `forced` the end, do not wait long for what other machines send.
        """
        ...

    def saboteur(self) -> Saboteur | None:
        """Who can hurt replicas of this engine; None if nobody can. Comes without `watch`."""
        ...

    def traces(self) -> Iterator[Path]:
        """The folders on this machine into which somebody alive writes."""
        ...
