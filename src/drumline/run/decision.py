"""Decisions about events, recorded with them, so that a reader needs neither the plan nor a policy.

`run.machine` makes decisions, in the supervisor only; `run.fold` applies them to a state.
"""

from drumline.plan.types import ReplicaId
from drumline.record import Record
from drumline.run.event import Cause, Evidence


class Verdict(Record):
    """The phase and reason that a replica gets after its end."""

    replica: ReplicaId
    phase: str
    reason: str = ""


class ReplicasJudged(Record):
    """The phases and reasons of replicas that ended; the ends of the replicas in `forgiven` do not end the attempt."""

    verdicts: tuple[Verdict, ...]
    forgiven: tuple[ReplicaId, ...] = ()


class GangStarted(Record):
    """All replicas of the attempt that have to start have started."""

    attempt: int


class AttemptEnded(Record):
    """The outcome of the attempt is decided; the remaining replicas are stopped. A later AttemptEnded corrects it."""

    attempt: int
    phase: str
    reason: str = ""
    cause: Cause | None = None
    evidence: Evidence | None = None  # from the log of the replica that is the cause
    message: str = ""  # the cause as a sentence for users
    at_seconds: float | None = None  # when the deciding event happened; None if no later report can change the decision
    awaits_stacks: bool = False  # no replica is stopped before all stacks are saved
    lingers: bool = False  # the run has succeeded; the remaining replicas get time to end by themselves


class GraceEnded(Record):
    """The time that the remaining replicas had to end by themselves is over."""

    attempt: int


class RestartChosen(Record):
    """All replicas start again as this attempt."""

    attempt: int
    failure: str  # the class of the failure; each class has its own restart budget
    number: int  # number of this restart in its class, from 1
    budget: int  # number of restarts that the class allows
    is_delayed: bool = False  # DelayChosen has the delay


class RevivalChosen(Record):
    """These replicas start again in the same attempt, once all of them have ended."""

    replicas: tuple[ReplicaId, ...]
    cause: Cause
    number: int  # number of this restart in its failure class, from 1
    budget: int  # number of restarts that the class allows
    at_seconds: float  # when the cause happened
    is_delayed: bool = False


class ReplicasRevived(Record):
    """These replicas start again, each as its next incarnation."""

    attempt: int
    replicas: tuple[ReplicaId, ...]


class RunWarned(Record):
    """A warning for the user."""

    message: str


class TensorBoardRequested(Record):
    """TensorBoard is to be started."""

    incarnation: int = 0


class RunEnded(Record):
    """The run is over: no process of it is left."""

    phase: str
    reason: str = ""
    message: str = ""  # the cause as a sentence for users


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
