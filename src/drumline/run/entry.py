"""An entry of a run's journal."""

from drumline.record import Record
from drumline.run.decision import Decision
from drumline.run.event import Event


class Entry(Record):
    """An event with its decisions, when it was recorded (UTC), and the same by the monotonic clock of the boot."""

    at: float
    since_boot: float
    boot: str
    event: Event
    decisions: tuple[Decision, ...] = ()
