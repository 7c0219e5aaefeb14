"""What every engine can do, and every session of a run on one; and what they need to know of the world."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

from drumline.plan.types import Launch, Placement, Plan
from drumline.record import Record
from drumline.run.event import Event
from drumline.run.incarnation import Incarnation


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


ReportEvent = Callable[[Event], None]


class Problem(Record):
    """What stops a plan from being started on an engine; a warning stops nothing."""

    message: str
    is_warning: bool = False


class Placed(Record):
    """Where each replica of an attempt can be reached, and warnings about that."""

    places: Placement
    warnings: tuple[str, ...] = ()


class Engine(Protocol):
    """Where replicas can run; has no state, and blocks for no longer than a moment."""

    capabilities: Capabilities

    async def place(self, plan: Plan) -> Placement:
        """Return where each replica could be reached, and claim nothing; raise InputError if the plan cannot fit."""
        ...

    def problems(self, plan: Plan, launches: Sequence[Launch]) -> Iterator[Problem]:
        """Yield why these could not be started, and warnings about how they would be."""
        ...

    def render(self, plan: Plan, launches: Sequence[Launch], form: str) -> str:
        """Return what would be started, exactly; the first half of starting it."""
        ...

    def open(self, run_dir: Path) -> AbstractAsyncContextManager[Session]:
        """Return the session of the run in this folder, for its supervisor.

        Leaving it closes connections, and stops nothing: the next supervisor opens the next session.
        """
        ...


class Session(Protocol):
    """One run on an engine, inside its supervisor.

    Nothing here blocks the loop: what takes longer than a moment is awaited. Orders may be given twice; a start that
    waits may be cancelled, and given again.
    """

    def events(self) -> AsyncIterator[Event]:
        """Return everything that happens to the run's replicas, in its order, for one reader.

        Each start and each end comes once. Of incarnations that an earlier session began, those that `start` and `stop`
        name are reported, the ends that came in between in the order in which they came.
        """
        ...

    async def place(self, plan: Plan, *, attempt: int = 0, keep: Sequence[str] = ()) -> Placed:
        """Claim what the plan asks for, and return where each replica is reached; raise InputError if it cannot fit.

        `keep` are the addresses of an attempt that is already under way. Raise MustWait while other runs have what is
        asked for; RoomFound follows when it can be had.
        """
        ...

    async def start(self, launches: Sequence[Launch]) -> None:
        """Start those that have not been started before, and return; that they run, and how they end, is reported.

        What a placement claimed and no start took over is given back. Raise EngineError if one cannot be started.
        """
        ...

    async def stop(self, incarnations: Sequence[Incarnation], *, grace_seconds: float) -> None:
        """Begin to stop these, with this grace; each end is reported, also of those that never started.

        Those that had ended before are reported as they ended. A second stop without grace shortens the first.
        """
        ...

    def traces(self) -> Iterator[Path]:
        """Yield the folders on this machine into which replicas write."""
        ...

    async def release(self, *, forced: bool = False) -> None:
        """Give back everything that was claimed for the run; it is over.

        Where the user has `forced` the end, do not wait long for what other machines send.
        """
        ...
