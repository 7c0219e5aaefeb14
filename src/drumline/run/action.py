"""What the machine orders: bare imperatives. Each may be given twice; the second time changes nothing."""

from collections.abc import Mapping
from types import MappingProxyType

from drumline.plan.types import ReplicaId
from drumline.record import Record
from drumline.run.incarnation import Incarnation
from drumline.run.state import Ending


class Prepare(Record):
    """Start the helper that builds the environment, or makes this data."""

    helper: ReplicaId
    incarnation: int = 0


class Start(Record):
    """Place and start the whole line as this attempt; who is not in its first life there is named with its number."""

    attempt: int
    incarnations: Mapping[ReplicaId, int] = MappingProxyType({})


class Stop(Record):
    """Stop these: TERM, the grace, KILL, the whole process tree of each."""

    incarnations: tuple[Incarnation, ...]
    grace_seconds: float


class TakeStacks(Record):
    """Save the stacks of these before they are stopped, whatever that does to them, and say StacksTaken."""

    attempt: int
    incarnations: tuple[Incarnation, ...]


class Serve(Record):
    """Start TensorBoard beside the line."""

    incarnation: int = 0


class SetTimer(Record):
    """Say TimerFired after so long, unless the attempt is over by then; `run` counts from the run's first event."""

    timer: str
    attempt: int
    seconds: float


class ChooseDelay(Record):
    """Choose how long the next attempt waits, about so long, and say DelayChosen."""

    attempt: int
    about_seconds: float


class Finish(Record):
    """The run is over; nothing of it is alive."""

    ending: Ending


Action = Prepare | Start | Stop | TakeStacks | Serve | SetTimer | ChooseDelay | Finish
