"""The outcome of a drill, from the events of a run."""

from __future__ import annotations

import pytest

from drumline.plan.types import ReplicaId
from drumline.run.drill import Fault, Outcome, check_cause, default_target, follow_outcome
from drumline.run.entry import Entry
from drumline.run.event import Cause, Exit
from drumline.run.failure import failure_class
from drumline.run.state import Phase
from scaffold.decisions import decided
from scaffold.gangs import gang
from scaffold.scenarios import ScenarioReplay

WORKER, CHIEF = ReplicaId("worker", 1), ReplicaId("worker", 0)
KILLED = Exit(signal=9)


def outcome_of(text: str, *happened: str, target: ReplicaId = WORKER) -> Outcome:
    """Return the outcome of a drill in a running gang after these events, one per second."""
    replay = ScenarioReplay(gang(text))
    replay.apply("running")
    before = replay.state
    events: list[Entry] = []
    for second, words in enumerate(happened, 1):
        count, state = len(replay.events), replay.state
        replay.apply(words)
        new = decided(replay.plan, replay.events[count:], state)
        events += [Entry(0.0, float(second), "", *each) for each in new]
    return follow_outcome(replay.plan, before, target, events)


def test_a_run_that_restarts_has_the_times_of_detection_and_cleanup_and_its_cause() -> None:
    outcome = outcome_of("worker*2 crash=1", "worker.1 signal 9", "worker.0 signal 15", "placed 1", "all start")
    assert (outcome.noticed_at, outcome.cleared_at) == (1, 2)
    assert (outcome.attempt, outcome.phase, outcome.is_running, outcome.is_over) == (1, Phase.RUNNING, True, False)
    assert outcome.cause
    assert outcome.cause.replica == WORKER
    assert check_cause(outcome, WORKER, Fault.KILL) == ""


def test_a_run_without_a_budget_does_not_restart_and_still_names_its_cause() -> None:
    outcome = outcome_of("worker*2", "worker.1 signal 9", "worker.0 signal 15")
    assert (outcome.noticed_at, outcome.cleared_at, outcome.phase) == (1, 2, Phase.FAILED)
    assert (outcome.is_over, outcome.is_running) == (True, False)
    assert check_cause(outcome, WORKER, Fault.KILL) == ""


def test_a_cause_other_than_the_target_of_the_fault_is_wrong() -> None:
    outcome = outcome_of("worker*2 crash=1", "worker.0 exits 1", "worker.1 signal 9")
    assert check_cause(outcome, WORKER, Fault.KILL) == "worker.0 is named as the cause; the fault was in worker.1"


def test_a_fault_that_was_not_detected_has_no_cause() -> None:
    outcome = outcome_of("worker*2 crash=1")
    assert outcome.noticed_at is None
    assert not outcome.is_running
    assert check_cause(outcome, WORKER, Fault.PAUSE) == "no cause is named; the fault was in worker.1"


def test_an_evaluator_that_fails_is_named_though_the_training_continues() -> None:
    evaluator = ReplicaId("evaluator", 0)
    outcome = outcome_of("worker*2 evaluator", "evaluator.0 signal 9", target=evaluator)
    assert (outcome.noticed_at, outcome.cleared_at, outcome.is_running) == (1, None, True)
    assert check_cause(outcome, evaluator, Fault.KILL) == ""
    assert check_cause(outcome_of("worker*2 evaluator", "evaluator.0 exits 0", target=evaluator), evaluator, Fault.KILL)


def test_the_first_cause_after_the_fault_counts() -> None:
    both = outcome_of("worker*2 crash=2", "worker.1 signal 9", "worker.0 signal 15", "running", "worker.0 exits 1")
    assert both.cause
    assert both.cause.replica == WORKER


def test_replicas_that_restart_within_an_attempt_are_cleared_when_the_last_of_them_has_ended() -> None:
    ps = ReplicaId("ps", 0)
    happened = ["stepped", "ps.0 exits 1", "chief.0 signal 15", "worker.0 signal 15", "delay 0", "timer hold 1"]
    happened += ["chief.0+1 starts", "worker.0+1 starts", "ps.0+1 starts"]
    outcomes = [outcome_of("chief worker ps crash=1", *happened[:count], target=ps) for count in range(1, 10)]
    assert [each.noticed_at for each in outcomes] == [None, *[2.0] * 8]
    assert [each.cleared_at for each in outcomes] == [*[None] * 3, *[4.0] * 6]
    assert [each.is_running for each in outcomes] == [*[False] * 8, True]
    assert {each.cause.replica for each in outcomes if each.cause} == {ps}


def test_a_run_is_not_running_while_its_attempt_ends_or_the_next_one_starts() -> None:
    happened = ["worker.1 signal 9", "worker.0 signal 15", "placed 1", "worker.0 starts", "worker.1 starts"]
    up = [outcome_of("worker*2 crash=1", *happened[:count]).is_running for count in range(1, 6)]
    assert up == [False, False, False, False, True]


@pytest.mark.parametrize(
    ("fault", "exit_", "failure", "is_right"),
    [
        (Fault.KILL, KILLED, None, True),
        (Fault.KILL, Exit(code=1), None, False),
        (Fault.KILL, KILLED.replace(out_of_memory=True), None, False),
        (Fault.TERM, Exit(signal=15), None, True),
        (Fault.TERM, Exit(code=42), None, True),
        (Fault.TERM, KILLED, None, False),
        (Fault.PAUSE, KILLED, "hang", True),
        (Fault.PAUSE, KILLED, None, False),
        (Fault.CUT, Exit(), None, True),
        (Fault.CUT, Exit(code=1), None, False),
    ],
)
def test_the_cause_has_to_match_the_fault(fault: Fault, exit_: Exit, failure: str | None, *, is_right: bool) -> None:
    cause = Cause(WORKER, 0, exit_, failure or failure_class(exit_, "tensorflow"), "")
    assert (check_cause(Outcome(cause=cause), WORKER, fault) == "") is is_right


@pytest.mark.parametrize("fault", list(Fault))
def test_of_two_replicas_that_lost_each_other_none_has_to_be_named(fault: Fault) -> None:
    cause = Cause(None, 0, Exit(message="chief.0 and worker.0 lost each other"), "lost", "Unreachable")
    assert (check_cause(Outcome(cause=cause), WORKER, fault) == "") is (fault is Fault.CUT)


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("worker*3", "worker.2"),
        ("worker", "worker.0"),
        ("chief worker*2 ps", "worker.1"),
        ("chief evaluator", "evaluator.0"),
        ("chief", "chief.0"),
    ],
)
def test_the_default_target_is_a_worker_that_is_not_chief_if_there_is_one(text: str, target: str) -> None:
    assert str(default_target(gang(text))) == target
