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
    from asyncio import AbstractEventLoop


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
    warm: Path | None = None  # the folder of its warm processes, where homes are shared by machines; None is the home
    next_supervisor: tuple[str, ...] = ()  # the command by which a keeper of this machine starts the run's next one


class Capabilities(Record):
    """What differs between engines, as data."""

    forms: tuple[str, ...]  # in which `render` can write, the usual one first
    dates_logs: bool = False  # its logs come with the times of their lines, and it writes the marks beside them


Tell = Callable[[Event], None]


class Engine(Protocol):
    """A place that can run a line.

    Nothing here blocks the loop: what takes longer than a moment is awaited. Orders may be given twice; a start that
    waits may be cancelled, and given again.
    """

    capabilities: Capabilities

    async def place(self, plan: Plan, *, attempt: int = 0, keep: Sequence[str] = ()) -> Placement:
        """Say where each replica will be reached and write; raise InputError if the plan cannot fit there.

        `keep` are the addresses of an attempt that is already under way. For a supervisor, what the plan asks for is
        claimed; raise MustWait while others have it, and tell RoomFound when it is to be had.
        """
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

    def watch(self, run_dir: Path, loop: AbstractEventLoop, tell: Tell) -> None:
        """Tell of everything that happens to this run's replicas from now on; comes before `start` and `stop`.

        Each start and each end is told once. Of lives that an earlier engine began, those that `start` and `stop`
        name are told of, the ends that came in between in the order in which they came.
        """
        ...

    async def start(self, launches: Sequence[Launch]) -> None:
        """Start whoever has not been started before, and return; that they run, and how they end, is told.

        Raise EngineError if that cannot be; what was claimed for those who were not started is given back.
        """
        ...

    async def stop(
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

    async def release(self, *, forced: bool = False) -> None:
        """Give back everything that was claimed for the run; it is over.

        Where the user has `forced` the end, do not wait long for what other machines send.
        """
        ...

    def traces(self) -> Iterator[Path]:
        """The folders on this machine into which somebody alive writes."""
        ...
