"""Events of a run: facts, each with the identity of what it is about.

Times in events are seconds of one monotonic clock; what is shown to users is the time of the journal's entry.
"""

from drumline.plan.types import ReplicaId
from drumline.record import Record


class Exit(Record):
    """How a process ended: its exit code, or the signal that ended it, or neither if its end was not observed."""

    code: int | None = None
    signal: int | None = None
    message: str = ""
    out_of_memory: bool = False  # the kernel ended it, or a process of it, when memory ran out
    reason: str = ""  # what ended it, in one word, where an engine knows that it did not end by itself

    @property
    def ok(self) -> bool:
        """Return whether it succeeded; a process that was made to end did not, whatever its exit code."""
        return self.code == 0 and not self.reason

    @property
    def seen(self) -> bool:
        """Return whether its end was observed."""
        return self.code is not None or self.signal is not None


class Evidence(Record):
    """What the last lines of a replica's log report about its end."""

    said: str  # `ValueError: bad row`, or what it reports of a peer
    reports: str = ""  # that a peer is `gone`, `silent` or `absent`; empty if it failed by itself
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
    """This attempt waits for resources; the message states which, and the runs before it in the queue."""

    attempt: int
    message: str


class RoomFound(Record):
    """The resources for a delayed attempt are free."""

    attempt: int


class ReplicaStarted(Record):
    """A replica's process runs."""

    replica: ReplicaId
    attempt: int
    incarnation: int = 0
    pid: int | None = None
    note: str = ""  # how it was started, if that is worth showing


class ReplicaWaits(Record):
    """A replica cannot start yet; the message states why. Reported once per change; empty: it no longer waits."""

    replica: ReplicaId
    attempt: int
    incarnation: int = 0
    reason: str = ""  # the same in one word
    message: str = ""
    is_fatal: bool = False  # it will never start


class ReplicaExited(Record):
    """A replica has ended, and nothing of it is left."""

    replica: ReplicaId
    attempt: int
    incarnation: int
    exit: Exit
    at_seconds: float
    evidence: Evidence | None = None


class FirstStepTaken(Record):
    """An attempt has taken a step, according to one of its replicas; the step is None if it is not known."""

    attempt: int
    replica: ReplicaId
    step: int | None
    at_seconds: float


class GangHung(Record):
    """No replica has made progress for longer than the timeout; the message says for how long."""

    attempt: int
    message: str


class StepsStalled(Record):
    """No step was taken for longer than earlier steps explain; the last step, its time, and what stacks show."""

    attempt: int
    step: int | None
    at_seconds: float
    seconds: float  # without a step, when this was detected
    replica: ReplicaId | None = None  # the one that does not wait where the others wait
    message: str = ""


class StepsResumed(Record):
    """A run that was stalled has taken a step."""

    attempt: int
    step: int | None
    at_seconds: float


class RendezvousFailed(Record):
    """The replicas have not found each other; which one is missing, and its address."""

    attempt: int
    replica: ReplicaId | None
    message: str


class StacksTaken(Record):
    """The stacks of all replicas are saved; which replica blocks the others according to them."""

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
    """The run is to end; what happened before `at_seconds` is decided first, even if it is reported later."""

    force: bool = False
    at_seconds: float = 0.0
    preempted: bool = False  # by the system that needs its resources, and not by its user


class ResumeRequested(Record):
    """The user wants a run that is over to continue with its next attempt."""


class TimerFired(Record):
    """The time of a SetTimer is over."""

    timer: str
    attempt: int


class DelayChosen(Record):
    """The delay before the next attempt; random, therefore recorded."""

    attempt: int
    seconds: float


class EngineFailed(Record):
    """The engine could not do what was asked of it."""

    attempt: int
    message: str


class EngineWarned(Record):
    """The engine does what was asked, but not all of it, or not as a user may expect."""

    attempt: int
    message: str


class ProjectCarried(Record):
    """The project is copied to where the replicas run."""

    files: int
    size_bytes: int
    hosts: int = 0  # that got a copy; 0 in a cluster
    sent_bytes: int | None = None  # to all of them, where they had parts of it already


class SummariesFound(Record):
    """The replicas have written summaries that TensorBoard can show."""


class TensorBoardServed(Record):
    """TensorBoard answers at this address."""

    address: str


class SupervisorReturned(Record):
    """A new supervisor took over: started by a keeper, the `number`th time of `most`, or by a command if that is 0."""

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
