"""The difference between two states of a run, as decisions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from drumline.plan.types import ReplicaId
from drumline.run.decision import (
    AttemptEnded,
    Decision,
    GraceEnded,
    ReplicasJudged,
    RevivalChosen,
    RunWarned,
    Verdict,
)
from drumline.run.describe import describe_cause
from drumline.run.state import Ending, RunState


def decisions_between(folded: RunState, judged: RunState, replica: ReplicaId | None = None) -> Iterator[Decision]:
    """Yield the decisions that lead from the state `folded` to the state `judged`, in the same phase and attempt.

    With `replica`, only that replica is compared: comparing thousands of replicas at each exit takes too long.
    """
    verdicts = tuple(_verdicts(folded, judged, judged.all_states if replica is None else (replica,)))
    forgiven = judged.forgiven[len(folded.forgiven) :]
    if verdicts or forgiven:
        yield ReplicasJudged(verdicts, forgiven)
    for each in judged.revivals[len(folded.revivals) :]:
        yield RevivalChosen(each.replicas, each.cause, each.number, each.budget, each.at_seconds, judged.holding)
    if judged.ending and (judged.ending, judged.stacks_due) != (folded.ending, folded.stacks_due):
        yield _attempt_ended(judged, judged.ending)
    elif folded.lingering and not judged.lingering:
        yield GraceEnded(judged.attempt)
    for message in judged.warnings[len(folded.warnings) :]:
        yield RunWarned(message)


def _verdicts(folded: RunState, judged: RunState, names: Iterable[ReplicaId]) -> Iterator[Verdict]:
    for name in names:
        before, each = folded.state_of(name), judged.state_of(name)
        if each and (before is None or (before.phase, before.reason) != (each.phase, each.reason)):
            yield Verdict(name, each.phase.value, each.reason)


def _attempt_ended(state: RunState, ending: Ending) -> AttemptEnded:
    cause = ending.cause
    replica_state = state.state_of(cause.replica) if cause and cause.replica else None
    return AttemptEnded(
        state.attempt,
        ending.phase.value,
        ending.reason,
        cause,
        replica_state.evidence if replica_state else None,
        describe_cause(cause) if cause else "",
        ending.at_seconds,
        awaits_stacks=state.stacks_due,
        lingers=state.lingering,
    )
