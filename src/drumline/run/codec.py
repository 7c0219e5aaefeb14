"""Convert events and decisions to plain data and back."""

from __future__ import annotations

from typing import Any, cast, get_args

from drumline.plan.codec import from_data, to_data
from drumline.run.decision import AttemptEnded, Decision, ReplicasJudged, RevivalChosen, RunEnded
from drumline.run.event import AttemptPlaced, Event
from drumline.run.state import Phase

# Events that were renamed keep their old names in the journal, since older versions ignore events with unknown names.
_STORED_NAMES = {"GangHung": "LineHung"}
_EVENTS: dict[str, Any] = {_STORED_NAMES.get(kind.__name__, kind.__name__): kind for kind in get_args(Event)}
_DECISIONS: dict[str, Any] = {kind.__name__: kind for kind in get_args(Decision)}


def event_to_data(event: Event | Decision) -> dict[str, object]:
    """Return an event as JSON data, beginning with its kind; a field with an empty default is left out if it has it."""
    name = type(event).__name__
    return {"event": _STORED_NAMES.get(name, name), **cast("dict[str, object]", to_data(event))}


def event_from_data(data: dict[str, Any], *, tolerant: bool = False) -> Event:
    """Return the event in this data; raise ValueError if this version does not know it.

    A `tolerant` reader ignores unknown fields: a newer version adds only fields that are safe to ignore to an existing
    kind of event, and adds a new kind of event for everything else.
    """
    event: Event = _read(_EVENTS, data, tolerant=tolerant)
    if isinstance(event, AttemptPlaced) and not event.addresses:
        raise ValueError("not an event of this version: AttemptPlaced without addresses")
    return event


def decision_from_data(data: dict[str, Any], *, tolerant: bool = False) -> Decision:
    """Return the decision in this data; raise ValueError if this version does not know it."""
    decision: Decision = _read(_DECISIONS, data, tolerant=tolerant)
    match decision:
        case ReplicasJudged():
            phases = [verdict.phase for verdict in decision.verdicts]
        case AttemptEnded() | RunEnded():
            phases = [decision.phase]
        case _:
            phases = []
    if isinstance(decision, RevivalChosen) and not decision.replicas:
        raise ValueError("not a decision of this version: RevivalChosen without replicas")
    if not all(Phase(phase).is_final for phase in phases):
        raise ValueError("not a decision of this version: a phase that is not final")
    return decision


def _read(kinds: dict[str, Any], data: dict[str, Any], *, tolerant: bool) -> Any:
    try:
        fields = {**data}
        name = fields.pop("event")
        return from_data(kinds[_STORED_NAMES.get(name, name)], fields, tolerant=tolerant)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"not an event of this version: {error}") from error
