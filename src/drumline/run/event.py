"""What can happen to a run: facts, in the past tense, each with the identity of what it is about.

Times in events are seconds of one clock that never goes back; when something is shown, the journal's own time is.
"""

from drumline.plan.types import ReplicaId
from drumline.record import Record


class Exit(Record):
    """How a process ended: its exit code, or the signal that ended it, or neither if nobody saw it end."""

    code: int | None = None
    signal: int | None = None
    message: str = ""
    out_of_memory: bool = False  # the kernel ended it, or a process of it, for want of memory
    reason: str = ""  # who or what ended it, in a word, where an engine knows that it did not end by itself

    @property
    def ok(self) -> bool:
        """Whether it ended as a success does; who was made to leave has not, whatever code it left with."""
        return self.code == 0 and not self.reason

    @property
    def seen(self) -> bool:
        """Whether somebody saw it end."""
        return self.code is not None or self.signal is not None


class Evidence(Record):
    """What the end of a replica's log says about its end."""

    said: str  # `ValueError: bad row`, or what it reports of a peer
    reports: str = ""  # that a peer is `gone`, `silent` or `absent`; nothing, if it failed itself
    blames: tuple[ReplicaId, ...] = ()  # the peers that it names


class Cause(Record):
    """The first failure of an attempt, which explains the others: which replica, how it ended, and of which class."""

    replica: ReplicaId | None
    attempt: int
    exit: Exit
    failure: str  # a class of failure, as restart budgets name it
    reason: str
    said: str = ""  # the exception that ended it, in a line


class RunAccepted(Record):
    """The run has a number, a plan and a supervisor."""


class AttemptPlaced(Record):
    """Every replica of this attempt has its address."""

    attempt: int
    addresses: tuple[str, ...]


class AttemptDelayed(Record):
    """There is no room for this attempt yet; the message says for what it waits, and behind whom."""

    attempt: int
    message: str


class RoomFound(Record):
    """There is room now for an attempt that was delayed."""

    attempt: int


class ReplicaStarted(Record):
    """A replica's process runs."""

    replica: ReplicaId
    attempt: int
    incarnation: int = 0
    pid: int | None = None
    note: str = ""  # how it was started, where there is something to say about it


class ReplicaWaits(Record):
    """A replica that was told to start cannot yet; for what it waits. Told once per change; no message: no more."""

    replica: ReplicaId
    attempt: int
    incarnation: int = 0
    reason: str = ""  # the same in a word
    message: str = ""
    is_fatal: bool = False  # however long it waits, it will not start


class ReplicaExited(Record):
    """A replica has ended, and nothing of it is left."""

    replica: ReplicaId
    attempt: int
    incarnation: int
    exit: Exit
    at_seconds: float
    evidence: Evidence | None = None


class FirstStepTaken(Record):
    """An attempt has taken a step, by what one of its replicas said; which, if it said that, and when it was there."""

    attempt: int
    replica: ReplicaId
    step: int | None
    at_seconds: float


class GangHung(Record):
    """Nobody has made progress for so long that nobody will; the message says for how long."""

    attempt: int
    message: str


class StepsStalled(Record):
    """No step was taken for longer than the steps before explain; the last one, when it was, and what stacks say."""

    attempt: int
    step: int | None
    at_seconds: float
    seconds: float  # without a step, when this was noticed
    replica: ReplicaId | None = None  # the one that is not where the others wait
    message: str = ""


class StepsResumed(Record):
    """A run that was stalled has taken a step."""

    attempt: int
    step: int | None
    at_seconds: float


class RendezvousFailed(Record):
    """The replicas have not found each other; who is missing, and where it should be."""

    attempt: int
    replica: ReplicaId | None
    message: str


class StacksTaken(Record):
    """The stacks of everybody are saved; whom they blame, and for what."""

    attempt: int
    replica: ReplicaId | None = None
    message: str = ""


class CauseNamed(Record):
    """The cause of a run that fails for good is known; recorded once, and once more if later evidence corrects it."""

    attempt: int
    cause: Cause
    message: str  # the cause in words, as it is shown
    is_correction: bool = False


class StopRequested(Record):
    """The run is to end; what came before that is decided before it, whenever it is told."""

    force: bool = False
    at_seconds: float = 0.0
    preempted: bool = False  # by whoever wants its place, and not by its user


class ResumeRequested(Record):
    """The user wants a run that is over to go on, as its next attempt."""


class TimerFired(Record):
    """A time that the machine asked for is over."""

    timer: str
    attempt: int


class DelayChosen(Record):
    """How long the next attempt waits; chosen by chance, so recorded."""

    attempt: int
    seconds: float


class EngineFailed(Record):
    """The engine could not do what was asked of it."""

    attempt: int
    message: str


class EngineWarned(Record):
    """The engine does what was asked, but not all of it, or not as one would think."""

    attempt: int
    message: str


class ProjectCarried(Record):
    """The project's folder is where the line runs, as far as replicas need it."""

    files: int
    size_bytes: int
    hosts: int = 0  # to which it was carried; none where it lies in a cluster
    sent_bytes: int | None = None  # to all of them, where they had most of it


class SummariesFound(Record):
    """The line has written something that TensorBoard can show."""


class TensorBoardServed(Record):
    """TensorBoard answers at this address."""

    address: str


class SupervisorReturned(Record):
    """A new supervisor took the run up again: by itself the `number`th time of `most`, or asked for if that is 0."""

    number: int = 0
    most: int = 0


Event = (
    RunAccepted
    | AttemptPlaced
    | AttemptDelayed
    | RoomFound
    | ReplicaStarted
    | ReplicaWaits
    | ReplicaExited
    | FirstStepTaken
    | GangHung
    | RendezvousFailed
    | StacksTaken
    | StepsStalled
    | StepsResumed
    | CauseNamed
    | StopRequested
    | ResumeRequested
    | TimerFired
    | DelayChosen
    | EngineFailed
    | EngineWarned
    | ProjectCarried
    | SummariesFound
    | TensorBoardServed
    | SupervisorReturned
)
