"""What a drill makes of what it sees."""

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


def seen(text: str, *happened: str, victim: ReplicaId = WORKER) -> Outcome:
    """What becomes of a line that runs when this happens, one thing a second."""
    telling = ScenarioReplay(gang(text))
    telling.tell("running")
    before = telling.state
    events: list[Entry] = []
    for second, words in enumerate(happened, 1):
        told, stood = len(telling.events), telling.state
        telling.tell(words)
        new = decided(telling.plan, telling.events[told:], stood)
        events += [Entry(0.0, float(second), "", *each) for each in new]
    return follow_outcome(telling.plan, before, victim, events)


def test_a_run_that_comes_back_has_been_noticed_torn_down_and_started_again() -> None:
    outcome = seen("worker*2 crash=1", "worker.1 signal 9", "worker.0 signal 15", "placed 1", "everybody starts")
    assert (outcome.noticed_at, outcome.cleared_at) == (1, 2)
    assert (outcome.attempt, outcome.phase, outcome.is_running, outcome.is_over) == (1, Phase.RUNNING, True, False)
    assert outcome.cause
    assert outcome.cause.replica == WORKER
    assert check_cause(outcome, WORKER, Fault.KILL) == ""


def test_a_run_without_a_budget_does_not_come_back_and_still_names_its_cause() -> None:
    outcome = seen("worker*2", "worker.1 signal 9", "worker.0 signal 15")
    assert (outcome.noticed_at, outcome.cleared_at, outcome.phase) == (1, 2, Phase.FAILED)
    assert (outcome.is_over, outcome.is_running) == (True, False)
    assert check_cause(outcome, WORKER, Fault.KILL) == ""


def test_who_is_named_though_another_was_hurt_is_wrong() -> None:
    outcome = seen("worker*2 crash=1", "worker.0 exits 1", "worker.1 signal 9")
    assert check_cause(outcome, WORKER, Fault.KILL) == "worker.0 is named as the cause; the fault was in worker.1"


def test_a_harm_that_nobody_noticed_names_nobody() -> None:
    outcome = seen("worker*2 crash=1")
    assert outcome.noticed_at is None
    assert not outcome.is_running
    assert check_cause(outcome, WORKER, Fault.PAUSE) == "no cause is named; the fault was in worker.1"


def test_an_evaluator_that_falls_is_named_though_the_training_goes_on() -> None:
    evaluator = ReplicaId("evaluator", 0)
    outcome = seen("worker*2 evaluator", "evaluator.0 signal 9", victim=evaluator)
    assert (outcome.noticed_at, outcome.cleared_at, outcome.is_running) == (1, None, True)
    assert check_cause(outcome, evaluator, Fault.KILL) == ""
    assert check_cause(seen("worker*2 evaluator", "evaluator.0 exits 0", victim=evaluator), evaluator, Fault.KILL)


def test_the_first_cause_since_counts_and_not_one_of_before_or_after() -> None:
    both = seen("worker*2 crash=2", "worker.1 signal 9", "worker.0 signal 15", "running", "worker.0 exits 1")
    assert both.cause
    assert both.cause.replica == WORKER


def test_replicas_that_start_again_without_the_run_have_been_cleared_when_the_last_of_them_has_ended() -> None:
    ps = ReplicaId("ps", 0)
    happened = ["stepped", "ps.0 exits 1", "chief.0 signal 15", "worker.0 signal 15", "delay 0", "timer hold 1"]
    happened += ["chief.0+1 starts", "worker.0+1 starts", "ps.0+1 starts"]
    outcomes = [seen("chief worker ps crash=1", *happened[:count], victim=ps) for count in range(1, 10)]
    assert [each.noticed_at for each in outcomes] == [None, *[2.0] * 8]
    assert [each.cleared_at for each in outcomes] == [*[None] * 3, *[4.0] * 6]
    assert [each.is_running for each in outcomes] == [*[False] * 8, True]
    assert {each.cause.replica for each in outcomes if each.cause} == {ps}


def test_a_run_is_not_up_while_its_attempt_ends_or_the_next_one_starts() -> None:
    happened = ["worker.1 signal 9", "worker.0 signal 15", "placed 1", "worker.0 starts", "worker.1 starts"]
    up = [seen("worker*2 crash=1", *happened[:count]).is_running for count in range(1, 6)]
    assert up == [False, False, False, False, True]


@pytest.mark.parametrize(
    ("harm", "exit_", "failure", "is_right"),
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
def test_the_cause_has_to_be_what_was_done(harm: Fault, exit_: Exit, failure: str | None, *, is_right: bool) -> None:
    cause = Cause(WORKER, 0, exit_, failure or failure_class(exit_, "tensorflow"), "")
    assert (check_cause(Outcome(cause=cause), WORKER, harm) == "") is is_right


@pytest.mark.parametrize("harm", list(Fault))
def test_of_two_that_lost_each_other_none_has_to_be_named(harm: Fault) -> None:
    cause = Cause(None, 0, Exit(message="chief.0 and worker.0 lost each other"), "lost", "Unreachable")
    assert (check_cause(Outcome(cause=cause), WORKER, harm) == "") is (harm is Fault.CUT)


@pytest.mark.parametrize(
    ("text", "victim"),
    [
        ("worker*3", "worker.2"),
        ("worker", "worker.0"),
        ("chief worker*2 ps", "worker.1"),
        ("chief evaluator", "evaluator.0"),
        ("chief", "chief.0"),
    ],
)
def test_a_worker_is_hurt_that_is_not_chief_unless_there_is_none(text: str, victim: str) -> None:
    assert str(default_target(gang(text))) == victim
