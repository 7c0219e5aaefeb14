"""Decisions: written and read back equal, and folded without a plan, even from a damaged journal."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drumline.plan.types import ReplicaId
from drumline.record import Record, field_defaults
from drumline.run.codec import decision_from_data, event_to_data
from drumline.run.decision import (
    AttemptEnded,
    Decision,
    GangStarted,
    GraceEnded,
    ReplicasJudged,
    ReplicasRevived,
    RestartChosen,
    RevivalChosen,
    RunEnded,
    RunWarned,
    TensorBoardRequested,
    Verdict,
)
from drumline.run.describe import describe_revival, describe_waits
from drumline.run.event import (
    AttemptPlaced,
    Cause,
    Evidence,
    Exit,
    ReplicaExited,
    ReplicaStarted,
    ResumeRequested,
    RunAccepted,
    StopRequested,
)
from drumline.run.fold import fold, fold_entry, new_run
from drumline.run.state import Phase
from scaffold.gangs import gang

WORKER, SECOND = ReplicaId("worker", 0), ReplicaId("worker", 1)
CAUSE = Cause(WORKER, 0, Exit(1), "crash", "Exited", "ValueError: bad row")
FAILED = AttemptEnded(0, "FAILED", "Exited", CAUSE, None, "worker.0: exit code 1, ValueError: bad row", 5.0)

replicas = st.builds(ReplicaId, st.sampled_from(["worker", "ps", "evaluator"]), st.integers(0, 2))
several = st.lists(replicas, max_size=3).map(tuple)
numbers = st.integers(0, 3)
seconds = st.floats(0, 1e6)
texts = st.text(max_size=5)
phases = st.sampled_from(["FINISHED", "FAILED", "KILLED"])
exits = st.builds(Exit, st.none() | numbers, st.none() | numbers, texts)
causes = st.builds(Cause, st.none() | replicas, numbers, exits, texts, texts, texts)
KINDS: dict[type, st.SearchStrategy[Decision]] = {
    ReplicasJudged: st.builds(
        ReplicasJudged, st.lists(st.builds(Verdict, replicas, phases, texts), max_size=3).map(tuple), several
    ),
    GangStarted: st.builds(GangStarted, numbers),
    AttemptEnded: st.builds(
        AttemptEnded,
        numbers,
        phases,
        texts,
        st.none() | causes,
        st.none() | st.builds(Evidence, texts, texts, several),
        texts,
        st.none() | seconds,
        st.booleans(),
        st.booleans(),
    ),
    GraceEnded: st.builds(GraceEnded, numbers),
    RestartChosen: st.builds(RestartChosen, numbers, texts, numbers, numbers, st.booleans()),
    RevivalChosen: st.builds(
        RevivalChosen,
        st.lists(replicas, min_size=1, max_size=3).map(tuple),
        causes,
        numbers,
        numbers,
        seconds,
        st.booleans(),
    ),
    ReplicasRevived: st.builds(ReplicasRevived, numbers, several),
    RunWarned: st.builds(RunWarned, texts),
    TensorBoardRequested: st.builds(TensorBoardRequested, numbers),
    RunEnded: st.builds(RunEnded, phases, texts, texts),
}
facts = st.one_of(
    st.just(RunAccepted()),
    st.builds(AttemptPlaced, numbers, st.just(("a:1", "a:2"))),
    st.builds(ReplicaStarted, replicas, numbers, numbers),
    st.builds(ReplicaExited, replicas, numbers, numbers, exits, seconds),
    st.just(StopRequested()),
    st.just(ResumeRequested()),
)


def test_every_decision_type_is_tested_here() -> None:
    assert set(KINDS) == set(get_args(Decision))


@settings(deadline=None)
@given(st.one_of(*KINDS.values()))
def test_a_decision_is_read_back_as_it_was_written(decision: Decision) -> None:
    assert decision_from_data(json.loads(json.dumps(event_to_data(decision)))) == decision


@pytest.mark.parametrize("kind", [*get_args(Decision), Verdict])
def test_an_absent_field_of_a_decision_has_an_empty_default(kind: type[Record]) -> None:
    assert not any(field_defaults(kind).values())  # any other default would change what old journals mean


@pytest.mark.parametrize(
    "data",
    [
        {"event": "RunEnded", "phase": "RUNNING"},
        {"event": "RunEnded", "phase": "OVER"},
        {"event": "AttemptEnded", "attempt": 0, "phase": "RESTARTING"},
        {"event": "ReplicasJudged", "verdicts": [{"replica": "worker.0", "phase": "RUNNING"}]},
        {"event": "RevivalChosen", "replicas": [], "cause": event_to_data(FAILED)["cause"], "number": 1, "budget": 1},
        {"event": "RunAccepted"},
        {"event": "RunForgotten"},
    ],
    ids=json.dumps,
)
def test_an_invalid_decision_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"not an? (event|decision) of this version|not a valid Phase"):
        decision_from_data(data)


@settings(deadline=None, max_examples=200)
@given(st.lists(st.one_of(facts, *KINDS.values()), max_size=12))
def test_events_and_decisions_in_any_order_can_be_folded(events: list[Any]) -> None:
    state = new_run(gang("worker*2 ps evaluator"))
    for event in (RunAccepted(), *events):
        state = fold(state, event)
        assert state == state.with_replicas(state.replicas), "the counts are right"
        assert len(state.causes) == len(state.verdicts)
        assert isinstance(describe_waits(state), str)
        assert all(map(describe_revival, state.revivals))


def test_the_state_before_a_restart_is_that_of_the_attempt_that_ended() -> None:
    plan = gang("worker*1")
    up = fold(new_run(plan), RunAccepted(), AttemptPlaced(0, ("a:1",)), ReplicaStarted(WORKER, 0), GangStarted(0))
    judged = ReplicasJudged((Verdict(WORKER, "FAILED", "Exited"),))
    folded = fold_entry(
        up, ReplicaExited(WORKER, 0, 0, Exit(1), 5.0), (judged, FAILED, RestartChosen(1, "crash", 1, 3))
    )
    assert folded.before_restart.replicas[WORKER].reason == "Exited"
    assert folded.before_restart.ending
    assert (folded.before_restart.attempt, folded.state.attempt) == (0, 1)
    assert (folded.state.phase, folded.state.causes, folded.state.verdicts) == (
        Phase.PENDING,
        (CAUSE,),
        (FAILED.message,),
    )
    assert folded.state.restarts == {"crash": 1}


def test_without_a_restart_both_states_are_equal() -> None:
    folded = fold_entry(new_run(gang("worker*1")), RunAccepted(), ())
    assert folded.state is folded.before_restart


def test_an_event_without_a_decision_ends_no_attempt() -> None:
    plan = gang("worker*2")
    up = fold(new_run(plan), RunAccepted(), AttemptPlaced(0, ("a:1", "a:2")), ReplicaStarted(WORKER, 0))
    state = fold(up, ReplicaExited(WORKER, 0, 0, Exit(1), 5.0))
    assert (state.replicas[WORKER].phase, state.replicas[WORKER].reason) == (Phase.FAILED, "")
    assert (state.ending, state.phase) == (None, Phase.STARTING)


def test_a_restart_changes_the_state_only_if_the_attempt_before_has_ended() -> None:
    up = fold(new_run(gang("worker")), RunAccepted(), AttemptPlaced(0, ("a:1",)), ReplicaStarted(WORKER, 0))
    assert fold(up, RestartChosen(1, "crash", 1, 3)) == up
    ended = fold(up, ReplicaExited(WORKER, 0, 0, Exit(1), 5.0), FAILED)
    assert fold(ended, RestartChosen(2, "crash", 1, 3)) == ended
    assert fold(ended, RestartChosen(1, "crash", 1, 3)).attempt == 1


def test_only_replicas_that_return_are_in_their_next_incarnation_and_count_again() -> None:
    up = fold(new_run(gang("worker*2")), RunAccepted(), AttemptPlaced(0, ("a:1", "a:2")))
    state = fold(up.replace(forgiven=(WORKER, SECOND)), ReplicasRevived(0, (WORKER,)))
    assert state.forgiven == (SECOND,)
    assert [each.incarnation for each in state.replicas.values()] == [1, 0]
