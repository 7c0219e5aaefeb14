"""The actions that the state machine orders. Each is idempotent."""

from collections.abc import Mapping
from types import MappingProxyType

from drumline.plan.types import ReplicaId
from drumline.record import Record
from drumline.run.incarnation import Incarnation
from drumline.run.state import Ending


class Prepare(Record):
    """Start the helper that builds the environment or prepares data."""

    helper: ReplicaId
    incarnation: int = 0


class Start(Record):
    """Place and start all replicas as this attempt; `incarnations` has the numbers of those that are not 0."""

    attempt: int
    incarnations: Mapping[ReplicaId, int] = MappingProxyType({})


class Stop(Record):
    """Stop these: TERM, the grace, KILL, the whole process tree of each."""

    incarnations: tuple[Incarnation, ...]
    grace_seconds: float


class TakeStacks(Record):
    """Save the stacks of these replicas before they are stopped, even if that disturbs them; report StacksTaken."""

    attempt: int
    incarnations: tuple[Incarnation, ...]


class Serve(Record):
    """Start TensorBoard beside the replicas."""

    incarnation: int = 0


class SetTimer(Record):
    """Report TimerFired after `seconds`, unless the attempt has ended; `run` starts at the run's first event."""

    timer: str
    attempt: int
    seconds: float


class ChooseDelay(Record):
    """Choose a delay of about `about_seconds` before the next attempt, and report DelayChosen."""

    attempt: int
    about_seconds: float


class Finish(Record):
    """Complete the run: none of its processes is left."""

    ending: Ending


Action = Prepare | Start | Stop | TakeStacks | Serve | SetTimer | ChooseDelay | Finish
