"""Decisions upon events, recorded with them, so that a reader needs neither the plan nor a policy.

`run.machine` makes decisions, in the supervisor only; `run.fold` applies them to a state.
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
    """The phases and reasons of replicas that ended; the gang survives the end of those in `forgiven`."""

    verdicts: tuple[Verdict, ...]
    forgiven: tuple[ReplicaId, ...] = ()


class GangStarted(Record):
    """All replicas of the attempt that have to start have started."""

    attempt: int


class AttemptEnded(Record):
    """The outcome of the attempt is decided; the remaining replicas are stopped. A later one corrects it."""

    attempt: int
    phase: str
    reason: str = ""
    cause: Cause | None = None
    evidence: Evidence | None = None  # what the log of the cause says
    message: str = ""  # the cause in words, as it is shown
    at_seconds: float | None = None  # when the deciding event happened; None if no later report can change the decision
    awaits_stacks: bool = False  # no replica is stopped before all stacks are saved
    lingers: bool = False  # it has succeeded; the remaining replicas may end by themselves for a while


class GraceEnded(Record):
    """The time in which remaining replicas may end by themselves is over."""

    attempt: int


class RestartChosen(Record):
    """All replicas start again as this attempt."""

    attempt: int
    failure: str  # the class, which has a restart budget
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
