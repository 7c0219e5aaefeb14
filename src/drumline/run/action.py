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
    """Place and start all replicas as this attempt; `incarnations` has the incarnation numbers other than 0."""

    attempt: int
    incarnations: Mapping[ReplicaId, int] = MappingProxyType({})


class Stop(Record):
    """Stop these incarnations with their whole process trees: send TERM, and KILL after the grace."""

    incarnations: tuple[Incarnation, ...]
    grace_seconds: float


class TakeStacks(Record):
    """Save the stacks of these replicas before they are stopped, and report StacksTaken.

    Saving may disturb a replica, or even end it.
    """

    attempt: int
    incarnations: tuple[Incarnation, ...]


class Serve(Record):
    """Start TensorBoard beside the replicas."""

    incarnation: int = 0


class SetTimer(Record):
    """Report TimerFired after `seconds`, unless the attempt has ended; the timer `run` counts from the first event."""

    timer: str
    attempt: int
    seconds: float


class ChooseDelay(Record):
    """Choose a delay of about `about_seconds` before the next attempt, and report DelayChosen."""

    attempt: int
    about_seconds: float


class Finish(Record):
    """End the supervision of the run: none of its processes is left."""

    ending: Ending


Action = Prepare | Start | Stop | TakeStacks | Serve | SetTimer | ChooseDelay | Finish
