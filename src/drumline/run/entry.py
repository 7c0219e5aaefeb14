"""An entry of a run's journal."""

from drumline.record import Record
from drumline.run.decision import Decision
from drumline.run.event import Event


class Entry(Record):
    """An event with its decisions, when it was written down (UTC), and the same by the clock that never goes back."""

    at: float
    since_boot: float
    boot: str
    event: Event
    decisions: tuple[Decision, ...] = ()
