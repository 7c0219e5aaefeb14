"""Resume a run that is over: it continues with its next attempt."""

from __future__ import annotations

from collections.abc import Iterable

from drumline.run.event import Cause, Event, Exit, ResumeRequested, StopRequested
from drumline.run.state import Phase, RunState

PREEMPTED = "Preempted"  # the run was stopped with its machine

_WORDS = {"Asked": "it was killed", PREEMPTED: "it was preempted"}


def may_return(events: Iterable[Event], state: RunState) -> bool:
    """Return whether a keeper may start the next supervisor: the run is not over, and no stop was requested."""
    stop_requested = False
    for event in events:
        stop_requested = isinstance(event, StopRequested) or (stop_requested and not isinstance(event, ResumeRequested))
    return not stop_requested and not state.phase.is_final


def may_resume(state: RunState) -> bool:
    """Return whether a run has failed or was killed."""
    return state.phase in (Phase.FAILED, Phase.KILLED)


def resumed(state: RunState) -> RunState:
    """Return the state of a resumed run: only the causes of earlier attempts are kept.

    Budgets, time limit and warnings are reset, since the user has acted.
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
