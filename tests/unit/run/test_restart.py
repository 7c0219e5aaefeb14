"""Whether, and after how long, the whole gang restarts; when the cause is recorded."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from drumline.plan.types import Plan, ReplicaId, Restart
from drumline.run.event import AttemptPlaced, Cause, Event, Evidence, Exit, ReplicaExited, ReplicaStarted, RunAccepted
from drumline.run.restart import (
    REPORT_SECONDS,
    delay_before,
    final_cause,
    grace_before_kill,
    is_permanent,
    may_restart,
    name_cause,
    with_failure_class,
)
from drumline.run.state import Ending, Phase, RunState
from scaffold.decisions import fold, step
from scaffold.gangs import gang


def test_a_class_of_failure_is_charged_to_its_own_budget() -> None:
    budgets = Restart(crash=2, lost=1)
    assert [may_restart(budgets, {"crash": spent, "lost": 9}, "crash") for spent in range(4)] == [
        True,
        True,
        False,
        False,
    ]
    assert may_restart(budgets, {"crash": 9}, "lost")
    assert not may_restart(budgets, {}, "preempted")


def test_a_class_without_a_budget_is_never_restarted() -> None:
    budgets = Restart(crash=9, lost=9, preempted=9, hang=9, rendezvous=9, out_of_memory=9)
    assert not may_restart(budgets, {}, "engine")
    assert not may_restart(budgets, {}, "time")


def test_the_first_restart_has_no_delay_and_each_after_it_a_longer_one_up_to_a_limit() -> None:
    budgets = Restart(backoff_initial_seconds=5.0, backoff_factor=3.0, backoff_maximum_seconds=60.0)
    assert [delay_before(budgets, restarts) for restarts in range(6)] == [0.0, 5.0, 15.0, 45.0, 60.0, 60.0]


def test_a_delay_stops_growing_after_65_restarts_so_that_it_stays_a_number() -> None:
    budgets = Restart(backoff_initial_seconds=1.0, backoff_factor=1.01, backoff_maximum_seconds=60.0)
    before, last, after = (delay_before(budgets, restarts) for restarts in (64, 65, 66))
    assert before < last == after == delay_before(budgets, 1_000_000)


@settings(deadline=None)
@given(
    initial=st.floats(0, 1e9),
    more=st.floats(0, 1e9),
    factor=st.floats(1, 100),
    restarts=st.integers(0, 6000),
)
def test_no_delay_is_shorter_than_the_one_before_or_longer_than_the_limit(
    initial: float, more: float, factor: float, restarts: int
) -> None:
    budgets = Restart(backoff_initial_seconds=initial, backoff_factor=factor, backoff_maximum_seconds=initial + more)
    first, second = delay_before(budgets, restarts), delay_before(budgets, restarts + 1)
    assert 0 <= first <= second <= initial + more


def test_permanent_codes_are_numbers_and_ranges_and_an_exit_with_0_has_none() -> None:
    budgets = Restart(permanent_codes=("2", "64-78"))
    ends = [Exit(code=code) for code in (0, 1, 2, 63, 64, 78, 79)]
    assert [is_permanent(budgets, end) for end in ends] == [False, False, True, False, True, True, False]
    assert not is_permanent(budgets, Exit(message="its host is gone"))
    assert is_permanent(Restart(permanent_codes=("137",)), Exit(signal=9))


def failing(plan: Plan, evidence: Evidence | None, exit_: Exit = Exit(code=1)) -> list[Event]:  # noqa: B008
    """Return the events of a run up to the end of its worker.0."""
    starts = (ReplicaStarted(each.id, 0) for each in plan.replicas)
    placed = AttemptPlaced(0, tuple("here:1" for _ in plan.replicas))
    return [RunAccepted(), placed, *starts, ReplicaExited(ReplicaId("worker", 0), 0, 0, exit_, 100.0, evidence)]


def test_the_cause_of_a_run_that_fails_is_known_before_the_other_replicas_have_ended() -> None:
    plan = gang("worker*2")
    cause = final_cause(plan, fold(plan, failing(plan, Evidence("ValueError: bad row"))))
    assert cause is not None
    assert (str(cause.replica), cause.said) == ("worker.0", "ValueError: bad row")


def test_no_cause_is_final_while_another_attempt_follows_or_the_run_goes_on() -> None:
    again = gang("worker*2 crash=1 early=1")
    events = failing(again, Evidence("ValueError: bad row"))
    assert final_cause(again, fold(again, events)) is None
    assert final_cause(again, fold(again, events[:-1])) is None


def test_a_replica_that_only_reports_about_a_peer_is_not_the_cause_before_all_have_ended() -> None:
    plan = gang("worker*2")
    state = fold(plan, failing(plan, Evidence("connection reset by peer", "gone")))
    assert final_cause(plan, state) is None
    last = ReplicaExited(ReplicaId("worker", 1), 0, 0, Exit(code=1), 100.4, Evidence("ValueError: bad row"))
    over, _ = step(plan, state, last)
    cause = final_cause(plan, over)
    assert cause is not None
    assert str(cause.replica) == "worker.1"


def test_a_crash_of_a_run_that_was_stopped_before_its_first_step_keeps_its_class() -> None:
    plan = gang("worker*2")
    crash = Cause(ReplicaId("worker", 0), 0, Exit(code=1), "crash", "Exited")
    failed = RunState(Phase.STARTING, ending=Ending(Phase.FAILED, "Exited", crash, 100.0))
    ending = with_failure_class(plan, failed).ending
    assert ending
    assert ending.cause
    assert ending.cause.failure == "early"
    for other in (Ending(Phase.KILLED, "Asked", crash, 100.0), None):
        stopped = failed.replace(ending=other)
        assert with_failure_class(plan, stopped) == stopped


def test_a_cause_that_was_not_recorded_is_known_when_the_run_is_over() -> None:
    crash = Cause(ReplicaId("worker", 0), 0, Exit(code=1), "crash", "Exited")
    ending = Ending(Phase.FAILED, "Exited", crash, 100.0)
    assert RunState(Phase.RUNNING, ending=ending).known_cause is None
    assert RunState(Phase.FAILED, ending=ending).known_cause == crash
    assert RunState(Phase.KILLED, ending=ending.replace(phase=Phase.KILLED)).known_cause is None


def test_while_the_cause_is_not_known_the_others_get_a_grace_to_report_it() -> None:
    plan = gang("worker*3")
    gone = fold(plan, failing(plan, Evidence("connection reset by peer", "gone")))
    silent = fold(plan, failing(plan, Evidence("a barrier timed out", "silent")))
    own = fold(plan, failing(plan, Evidence("ValueError: bad row")))
    assert [grace_before_kill(plan, each) for each in (own, gone, silent)] == [0, REPORT_SECONDS, 10]


def test_the_cause_is_named_once_and_once_more_if_later_evidence_names_another() -> None:
    plan = gang("worker*3")
    events = failing(plan, Evidence("EOFError: the connection was closed"))
    assert name_cause(plan, fold(plan, events[:-1])) is None
    named = name_cause(plan, fold(plan, events))
    assert named is not None
    assert (str(named.cause.replica), named.is_correction) == ("worker.0", False)
    assert named.message == "worker.0: exit code 1, EOFError: the connection was closed"
    events.append(named)
    assert name_cause(plan, fold(plan, events)) is None
    # This exit came before the one that decided, and is reported after it; a third may still name another replica.
    events.append(ReplicaExited(ReplicaId("worker", 1), 0, 0, Exit(code=1), 99.0, Evidence("ValueError: bad row")))
    state = fold(plan, events)
    assert name_cause(plan, state) is None
    assert state.known_cause == named.cause
    events.append(ReplicaExited(ReplicaId("worker", 2), 0, 0, Exit(signal=9), 101.0))
    correction = name_cause(plan, fold(plan, events))
    assert correction is not None
    assert (str(correction.cause.replica), correction.is_correction) == ("worker.1", True)
    events.append(correction)
    state = fold(plan, events)
    assert state.named == (named.cause, correction.cause)
    assert state.known_cause == correction.cause
    assert name_cause(plan, state) is None


def test_a_cause_that_all_evidence_confirms_is_not_corrected() -> None:
    plan = gang("worker*2")
    events = failing(plan, Evidence("ValueError: bad row"))
    first = name_cause(plan, fold(plan, events))
    assert first is not None
    events += [first, ReplicaExited(ReplicaId("worker", 1), 0, 0, Exit(signal=9), 100.1)]
    assert name_cause(plan, fold(plan, events)) is None


def test_the_cause_of_an_attempt_is_not_that_of_the_next() -> None:
    plan = gang("worker*2 lost=1")
    events = failing(plan, Evidence("EOFError: the connection was closed"))
    first = name_cause(plan, fold(plan, events))
    assert first is not None
    lost = ReplicaExited(ReplicaId("worker", 1), 0, 0, Exit(signal=9, reason="HostLost"), 99.0)
    state = fold(plan, [*events, first, lost])
    assert (state.attempt, state.named) == (1, ())
