"""An entry of a run's journal."""

from drumline.record import Record
from drumline.run.decision import Decision
from drumline.run.event import Event


class Entry(Record):
    """An event with its decisions, and when it was recorded, by two clocks."""

    at: float  # seconds since 1970 (UTC)
    since_boot: float  # seconds of the monotonic clock
    boot: str  # id of the boot to which `since_boot` belongs
    event: Event
    decisions: tuple[Decision, ...] = ()
