"""Events as plain data and back, equal."""

from __future__ import annotations

from typing import Any, cast, get_args

from drumline.plan.codec import from_data, to_data
from drumline.run.event import AttemptPlaced, Event

_KINDS: dict[str, Any] = {kind.__name__: kind for kind in get_args(Event)}


def event_to_data(event: Event) -> dict[str, object]:
    """Write an event as what JSON knows, its kind first; fields at a default that never changes are left out."""
    return {"event": type(event).__name__, **cast("dict[str, object]", to_data(event))}


def event_from_data(data: dict[str, Any], *, tolerant: bool = False) -> Event:
    """Read an event back; raise ValueError for what this version does not know.

    A `tolerant` reader leaves out unknown fields: a newer version may add some, and what must not be overlooked is a
    new kind of event there.
    """
    try:
        fields = {**data}
        event: Event = from_data(_KINDS[fields.pop("event")], fields, tolerant=tolerant)
        if isinstance(event, AttemptPlaced) and not event.addresses:
            raise ValueError("an attempt that is placed nowhere")
        return event
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"not an event of this version: {error}") from error
