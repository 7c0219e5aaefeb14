"""Compute the decisions for journals of version 1, which have only events.

No other reader of journals runs the state machine.
"""

from __future__ import annotations

from drumline.plan.types import Plan
from drumline.run.decision import Decision
from drumline.run.event import Event
from drumline.run.fold import fold, new_run
from drumline.run.machine import transition


class Upgrade:
    """Computes the decisions of one journal, in order."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._state = new_run(plan)

    def decide(self, event: Event) -> tuple[Decision, ...]:
        """Return the decisions about the next event, for which none are recorded."""
        decided = transition(self._plan, self._state, event)
        self._state = decided.state
        return decided.decisions

    def take(self, event: Event, decisions: tuple[Decision, ...]) -> None:
        """Update the state with the next event and its recorded decisions."""
        self._state = fold(self._state, event, *decisions)
