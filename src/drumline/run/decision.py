"""What is concluded from an event: recorded with it, so that a reader needs neither the plan nor a policy.

`run.machine` makes decisions, and only the supervisor asks it; `run.fold` says what each means.
"""

from drumline.plan.types import ReplicaId
from drumline.record import Record
from drumline.run.event import Cause, Evidence


class Verdict(Record):
    """What the end of a replica counts as."""

    replica: ReplicaId
    phase: str
    reason: str = ""


class ReplicasJudged(Record):
    """It is decided what the ends of these replicas count as; the gang survives the end of those in `forgiven`."""

    verdicts: tuple[Verdict, ...]
    forgiven: tuple[ReplicaId, ...] = ()


class GangStarted(Record):
    """No replica of the attempt is waited for any more."""

    attempt: int


class AttemptEnded(Record):
    """It is decided what the attempt comes to; the replicas that are left are stopped. A later one corrects it."""

    attempt: int
    phase: str
    reason: str = ""
    cause: Cause | None = None
    evidence: Evidence | None = None  # what the replica said that is the cause
    message: str = ""  # the cause in words, as it is shown
    at_seconds: float | None = None  # when what decided it happened; None if it stands whatever else is told
    awaits_stacks: bool = False  # no replica is stopped before all stacks are saved
    lingers: bool = False  # it has succeeded; the replicas that are left may end by themselves for a while


class GraceEnded(Record):
    """The replicas that were left to end by themselves are not waited for any more."""

    attempt: int


class RestartChosen(Record):
    """The whole gang starts again as this attempt."""

    attempt: int
    failure: str  # the class whose budget it is charged to
    number: int  # of the restarts of that class
    budget: int
    is_delayed: bool = False  # DelayChosen says for how long


class RevivalChosen(Record):
    """These replicas start again in the same attempt, once all of them have ended."""

    replicas: tuple[ReplicaId, ...]
    cause: Cause
    number: int  # of the restarts of that class
    budget: int
    at_seconds: float  # when the cause happened
    is_delayed: bool = False


class ReplicasRevived(Record):
    """Replicas that were to start again do, each as its next incarnation."""

    attempt: int
    replicas: tuple[ReplicaId, ...]


class RunWarned(Record):
    """Something that the user should know was concluded."""

    message: str


class TensorBoardRequested(Record):
    """TensorBoard is to be served beside the run."""

    incarnation: int = 0


class RunEnded(Record):
    """The run is over: nothing of it is left."""

    phase: str
    reason: str = ""
    message: str = ""  # why, as it is shown


Decision = (
    ReplicasJudged
    | GangStarted
    | AttemptEnded
    | GraceEnded
    | RestartChosen
    | RevivalChosen
    | ReplicasRevived
    | RunWarned
    | TensorBoardRequested
    | RunEnded
)
