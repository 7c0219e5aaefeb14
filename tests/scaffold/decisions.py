"""Runs without a supervisor: facts are given to the state machine, and its decisions are applied after each fact."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from drumline.plan.types import Plan
from drumline.run.action import Action
from drumline.run.codec import decision_from_data, event_to_data
from drumline.run.event import Event
from drumline.run.fold import fold as fold_events
from drumline.run.fold import new_run
from drumline.run.machine import transition
from drumline.run.state import RunState
from drumline.store.journal import Decided


def step(plan: Plan, state: RunState, event: Event) -> tuple[RunState, tuple[Action, ...]]:
    """Return the state after an event and the actions; check that the journal alone leads to the same state."""
    decided = transition(plan, state, event)
    written = [decision_from_data(event_to_data(each)) for each in decided.decisions]
    assert fold_events(state, event, *written) == decided.state
    return decided.state, decided.actions


def decided(plan: Plan, facts: Iterable[Event], state: RunState | None = None) -> Iterator[Decided]:
    """Yield the facts, each followed by the decisions of the state machine, as in a journal."""
    state = state or new_run(plan)
    for fact in facts:
        reached = transition(plan, state, fact)
        state = reached.state
        yield fact, reached.decisions


def fold(plan: Plan, facts: Iterable[Event]) -> RunState:
    """Return the state after these facts and the decisions of the state machine."""
    state = new_run(plan)
    for fact in facts:
        state, _ = step(plan, state, fact)
    return state
