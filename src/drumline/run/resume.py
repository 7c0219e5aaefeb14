"""Going on with a run that is over: the same run, its next attempt."""

from __future__ import annotations

from collections.abc import Iterable

from drumline.run.event import Cause, Event, Exit, ResumeRequested, StopRequested
from drumline.run.state import Phase, RunState

PREEMPTED = "Preempted"  # why a run ended whose supervisor was asked to go: a machine that is wanted for something else

_WORDS = {"Asked": "it was killed", PREEMPTED: "it was preempted"}


def may_return(events: Iterable[Event], state: RunState) -> bool:
    """Whether a supervisor may take a run up that no user asked for: the run goes on, and was not asked to stop."""
    asked = False
    for event in events:
        asked = isinstance(event, StopRequested) or (asked and not isinstance(event, ResumeRequested))
    return not asked and not state.phase.is_final


def may_resume(state: RunState) -> bool:
    """Whether a run is over and has not finished."""
    return state.phase in (Phase.FAILED, Phase.KILLED)


def resumed(state: RunState) -> RunState:
    """A run at the beginning of its next life: of the one before it only remembers why each attempt ended.

    Its user has acted, so budgets, time limit and warnings begin anew.
    """
    ending = state.ending
    if ending is None:
        raise AssertionError("a run that is over has an ending")
    words = Exit(message=_WORDS.get(ending.reason, ending.reason))
    cause = ending.cause or Cause(None, state.attempt, words, "asked", ending.reason)
    verdict = state.verdict if ending.cause else words.message
    return RunState(
        attempt=state.attempt + 1,
        causes=(*state.causes, cause),
        verdicts=(*state.verdicts, verdict),
        resumes=state.resumes + 1,
        replica_ids=state.replica_ids,
        helper_ids=state.helper_ids,
    )
