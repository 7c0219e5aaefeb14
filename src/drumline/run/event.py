"""Events of a run: facts, each with the replica, attempt or incarnation that it concerns.

Times in events are seconds of one monotonic clock. Users are shown the time of the journal's entry instead.
"""

from drumline.plan.types import ReplicaId
from drumline.record import Record


class Exit(Record):
    """How a process ended: its exit code, or the signal that ended it, or neither if its end was not observed."""

    code: int | None = None
    signal: int | None = None
    message: str = ""
    out_of_memory: bool = False  # the kernel killed the process, or one of its children, because memory ran out
    reason: str = ""  # one word, such as `Evicted`, if the engine knows that the process was ended from outside

    @property
    def ok(self) -> bool:
        """Return whether the process succeeded; one that was ended from outside did not, whatever its exit code."""
        return self.code == 0 and not self.reason

    @property
    def seen(self) -> bool:
        """Return whether the end of the process was observed."""
        return self.code is not None or self.signal is not None


class Evidence(Record):
    """What the last lines of a replica's log report about its end."""

    said: str  # the error, `ValueError: bad row`, or a description of the report about a peer
    reports: str = ""  # the reported state of a peer: `gone`, `silent` or `absent`; empty if the replica itself failed
    blames: tuple[ReplicaId, ...] = ()  # the peers that the report names


class Cause(Record):
    """The first failure of an attempt, which explains the others: the replica, its exit, and the failure class."""

    replica: ReplicaId | None  # None if no single replica is the cause
    attempt: int
    exit: Exit
    failure: str  # the failure class; restart budgets have the same names
    reason: str  # a machine-readable word
    said: str = ""  # the exception that ended the replica, in one line


class RunAccepted(Record):
    """The run has a number, a plan and a supervisor."""


class AttemptPlaced(Record):
    """Every replica of this attempt has its address."""

    attempt: int
    addresses: tuple[str, ...]


class AttemptDelayed(Record):
    """This attempt waits for resources; the message names them, and the runs before it in the queue."""

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
    note: str = ""  # how it was started, as text for users; empty if there is nothing to mention


class ReplicaWaits(Record):
    """A replica cannot start yet; the message states why, and is empty if the replica no longer waits.

    Reported once per change.
    """

    replica: ReplicaId
    attempt: int
    incarnation: int = 0
    reason: str = ""  # the message as one machine-readable word
    message: str = ""
    is_fatal: bool = False  # the replica will never start


class ReplicaExited(Record):
    """A replica has ended, and none of its processes is left."""

    replica: ReplicaId
    attempt: int
    incarnation: int
    exit: Exit
    at_seconds: float
    evidence: Evidence | None = None


class FirstStepTaken(Record):
    """An attempt has taken its first step, according to this replica; `step` is None if its number is not known."""

    attempt: int
    replica: ReplicaId
    step: int | None
    at_seconds: float


class GangHung(Record):
    """No replica has made progress for longer than the timeout; the message says for how long."""

    attempt: int
    message: str


class StepsStalled(Record):
    """No step was taken for much longer than between any two earlier steps."""

    attempt: int
    step: int | None  # the last step
    at_seconds: float  # when the last step was taken
    seconds: float  # time since the last step when the stall was detected
    replica: ReplicaId | None = None  # the replica that blocks the others, according to the stacks
    message: str = ""  # what the stacks show


class StepsResumed(Record):
    """A run that was stalled has taken a step."""

    attempt: int
    step: int | None
    at_seconds: float


class RendezvousFailed(Record):
    """The replicas have not found each other; the message names the missing replica and its address."""

    attempt: int
    replica: ReplicaId | None
    message: str


class StacksTaken(Record):
    """The stacks of all replicas are saved; `replica` blocks the others according to them."""

    attempt: int
    replica: ReplicaId | None = None
    message: str = ""


class CauseNamed(Record):
    """The cause of a run that fails for good is known; recorded once, and once more if later evidence corrects it."""

    attempt: int
    cause: Cause
    message: str  # the cause as a sentence for users
    is_correction: bool = False


class StopRequested(Record):
    """The run is to end; exits before `at_seconds` count as before the request, even if they are reported later."""

    force: bool = False  # without a grace
    at_seconds: float = 0.0
    preempted: bool = False  # requested by the system, which needs the resources, and not by the user


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
    """The engine could not perform an action."""

    attempt: int
    message: str


class EngineWarned(Record):
    """The engine performs an action, but only in part, or not as a user may expect; the message states how."""

    attempt: int
    message: str


class ProjectCarried(Record):
    """The project is copied to the machines on which the replicas run."""

    files: int
    size_bytes: int
    hosts: int = 0  # number of hosts with a copy; 0 in a cluster
    sent_bytes: int | None = None  # to all hosts together; less than their copies where hosts had files already


class SummariesFound(Record):
    """The replicas have written summaries that TensorBoard can show."""


class TensorBoardServed(Record):
    """TensorBoard answers at this address."""

    address: str


class SupervisorReturned(Record):
    """A new supervisor took over; it was started by a keeper, or by a command if `number` is 0."""

    number: int = 0  # how many supervisors keepers have started so far, including this one
    most: int = 0  # how many supervisors keepers start at most


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
