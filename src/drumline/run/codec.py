"""Events and decisions as plain data and back, equal."""

from __future__ import annotations

from typing import Any, cast, get_args

from drumline.plan.codec import from_data, to_data
from drumline.run.decision import AttemptEnded, Decision, ReplicasJudged, RevivalChosen, RunEnded
from drumline.run.event import AttemptPlaced, Event
from drumline.run.state import Phase

# The names by which renamed events are stored: a version that does not know a name overlooks the event.
_STORED_NAMES = {"GangHung": "LineHung"}
_EVENTS: dict[str, Any] = {_STORED_NAMES.get(kind.__name__, kind.__name__): kind for kind in get_args(Event)}
_DECISIONS: dict[str, Any] = {kind.__name__: kind for kind in get_args(Decision)}


def event_to_data(event: Event | Decision) -> dict[str, object]:
    """Write an event as what JSON knows, its kind first; fields at a default that never changes are left out."""
    name = type(event).__name__
    return {"event": _STORED_NAMES.get(name, name), **cast("dict[str, object]", to_data(event))}


def event_from_data(data: dict[str, Any], *, tolerant: bool = False) -> Event:
    """Read an event back; raise ValueError for what this version does not know.

    A `tolerant` reader leaves out unknown fields: a newer version may add some, and what must not be overlooked is a
    new kind of event there.
    """
    event: Event = _read(_EVENTS, data, tolerant=tolerant)
    if isinstance(event, AttemptPlaced) and not event.addresses:
        raise ValueError("not an event of this version: an attempt that is placed nowhere")
    return event


def decision_from_data(data: dict[str, Any], *, tolerant: bool = False) -> Decision:
    """Read a decision back; raise ValueError for what this version does not know."""
    decision: Decision = _read(_DECISIONS, data, tolerant=tolerant)
    match decision:
        case ReplicasJudged():
            phases = [verdict.phase for verdict in decision.verdicts]
        case AttemptEnded() | RunEnded():
            phases = [decision.phase]
        case _:
            phases = []
    if isinstance(decision, RevivalChosen) and not decision.replicas:
        raise ValueError("not a decision of this version: a revival of nothing")
    if not all(Phase(phase).is_final for phase in phases):
        raise ValueError("not a decision of this version: an end that is none")
    return decision


def _read(kinds: dict[str, Any], data: dict[str, Any], *, tolerant: bool) -> Any:
    try:
        fields = {**data}
        name = fields.pop("event")
        return from_data(kinds[_STORED_NAMES.get(name, name)], fields, tolerant=tolerant)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"not an event of this version: {error}") from error
