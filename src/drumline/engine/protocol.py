"""The protocols of engines and sessions, and the types of their arguments."""

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
    """The resources of a machine; a GPU is named as in CUDA_VISIBLE_DEVICES."""

    cpus: float
    memory_bytes: int
    gpus: tuple[str, ...] = ()


class MustWait(Exception):  # noqa: N818
    """The run has to wait for resources; the message names them."""


class Interpreter(Record):
    """A Python interpreter, and why it was chosen."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"

    @property
    def folder(self) -> str:
        """Return the folder of the programs of its environment."""
        return self.path.rpartition("/")[0]


class Site(Record):
    """The machine and the folders that an engine works with."""

    directory: Path  # of the spec; relative paths in it start here
    home: Path
    cores: int
    python_dir: str | None = None  # added to the front of PATH if `python` on PATH would be another one
    capacity: Capacity | None = None  # None: the engine measures it when it is needed
    cache: Path | None = None  # the folder for files that can be made again, shared by all homes of a user
    python: Interpreter | None = None  # the meaning of `python` in commands; None: drumline's own
    warm: Path | None = None  # the folder of warm processes, if machines share the home; None: in the home
    next_supervisor: tuple[str, ...] = ()  # the command by which a keeper starts the next supervisor of the run


class Capabilities(Record):
    """The differences between engines, as data."""

    forms: tuple[str, ...]  # the output forms of `render`, the default first
    dates_logs: bool = False  # the engine receives the time of each log line, and writes the time marks itself


ReportEvent = Callable[[Event], None]


class Problem(Record):
    """A reason why a plan cannot be started on an engine; with `is_warning`, it can still be started."""

    message: str
    is_warning: bool = False


class Placed(Record):
    """The placement of an attempt, and warnings about it."""

    places: Placement
    warnings: tuple[str, ...] = ()


class Engine(Protocol):
    """Runs replicas; has no state, and its methods block only briefly."""

    capabilities: Capabilities

    async def place(self, plan: Plan) -> Placement:
        """Return the expected place of each replica without claiming it; raise InputError if the plan cannot fit."""
        ...

    def problems(self, plan: Plan, launches: Sequence[Launch]) -> Iterator[Problem]:
        """Yield reasons why these launches cannot be started, and warnings."""
        ...

    def render(self, plan: Plan, launches: Sequence[Launch], form: str) -> str:
        """Return exactly what would be started; this is the first half of a start."""
        ...

    def open(self, run_dir: Path) -> AbstractAsyncContextManager[Session]:
        """Return the session of the run in this folder, for its supervisor.

        Its exit closes connections and stops no replica: the next supervisor opens the next session.
        """
        ...


class Session(Protocol):
    """One run on an engine, inside its supervisor.

    No method blocks the loop: long operations are awaited. All methods may be called again with the same arguments; a
    `start` that is still awaited may be cancelled and repeated.
    """

    def events(self) -> AsyncIterator[Event]:
        """Return the events of the run's replicas in their order, for one reader.

        Each start and each end is reported once. Incarnations of an earlier session are reported once `start` or `stop`
        has named them; ends since that session are reported in their order.
        """
        ...

    async def place(self, plan: Plan, *, attempt: int = 0, keep: Sequence[str] = ()) -> Placed:
        """Claim the resources of a plan, and return the place of each replica; raise InputError if it cannot fit.

        `keep` are the addresses of an attempt that has already begun. Raise MustWait while other runs have the
        resources; the event RoomFound is reported when they are free.
        """
        ...

    async def start(self, launches: Sequence[Launch]) -> None:
        """Start the replicas that have not been started before; their starts and ends are reported as events.

        Claims of the placement that these launches do not use are released. Raise EngineError if a replica cannot be
        started.
        """
        ...

    async def stop(self, incarnations: Sequence[Incarnation], *, grace_seconds: float) -> None:
        """Begin to stop these incarnations, with this grace; the end of each is reported, even if it never started.

        An incarnation that has ended already is reported with that end. A second stop without grace shortens the first.
        """
        ...

    def traces(self) -> Iterator[Path]:
        """Yield the folders on this machine into which replicas write."""
        ...

    async def release(self, *, forced: bool = False) -> None:
        """Release everything that was claimed for the run, which is over.

        If the user has `forced` the end, do not wait long for other machines.
        """
        ...
