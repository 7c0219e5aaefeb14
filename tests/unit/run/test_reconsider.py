"""The cause of a failure, after all replicas have ended: small cases that were not recorded from a framework."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drumline.plan.types import ReplicaId
from drumline.run.event import AttemptPlaced, Cause, Event, Evidence, Exit, ReplicaExited, ReplicaStarted, RunAccepted
from drumline.run.reconsider import first_report, reconsider_cause
from drumline.run.state import Ending, Phase, ReplicaState, RunState
from scaffold.decisions import fold
from scaffold.effort import examples
from scaffold.gangs import gang

GONE = Evidence("connection reset by peer", "gone")
SILENT = Evidence("timed out in a collective", "silent")
OWN = Evidence("ValueError: bad row")


def worker(index: int) -> ReplicaId:
    return ReplicaId("worker", index)


def end(index: int, at: float, evidence: Evidence | None = None, **exit_: int) -> ReplicaExited:
    return ReplicaExited(worker(index), 0, 0, Exit(**exit_), at, evidence)  # type: ignore[arg-type]


def state_after(*ends: ReplicaExited, workers: int = 2) -> RunState:
    plan = gang(f"worker*{workers}")
    before: list[Event] = [RunAccepted(), AttemptPlaced(0, ("host:1",) * workers)]
    return fold(plan, [*before, *(ReplicaStarted(worker(index), 0) for index in range(workers)), *ends])


def cause_of(*ends: ReplicaExited, workers: int = 2) -> Cause:
    ending = state_after(*ends, workers=workers).ending
    assert ending is not None
    assert ending.cause is not None
    return ending.cause


def naming(evidence: Evidence, *indices: int) -> Evidence:
    """Return the evidence as a report that names these workers."""
    return Evidence(evidence.said, evidence.reports, tuple(map(worker, indices)))


def test_an_own_failure_is_preferred_to_a_report_shortly_before() -> None:
    cause = cause_of(end(0, 10.0, GONE, code=1), end(1, 10.004, OWN, code=1))
    assert (cause.replica, cause.reason, cause.said) == (worker(1), "Exited", "ValueError: bad row")


def test_an_own_failure_more_than_ten_seconds_after_a_report_is_not_the_cause() -> None:
    assert cause_of(end(0, 10.0, GONE, code=1), end(1, 20.0, OWN, code=1)).replica == worker(1)
    assert cause_of(end(0, 10.0, GONE, code=1), end(1, 20.1, OWN, code=1)).replica == worker(0)


def test_of_two_own_failures_after_a_report_the_earlier_one_is_the_cause() -> None:
    ends = [end(0, 10.0, GONE, code=1), end(1, 10.2, OWN, code=1), end(2, 10.1, OWN, code=1)]
    assert cause_of(*ends, workers=3).replica == worker(2)


def test_an_exception_of_a_replica_that_was_stopped_counts_unless_another_one_is_named() -> None:
    stopped = end(1, 10.2, OWN, signal=15)
    assert cause_of(end(0, 10.0, GONE, code=1), stopped, end(2, 10.3, signal=15), workers=3).replica == worker(1)
    named = end(0, 10.0, naming(GONE, 2), code=1)
    assert cause_of(named, stopped, end(2, 10.3, signal=15), workers=3).replica == worker(0)


def test_the_failure_of_an_evaluator_or_of_its_machine_is_not_the_cause_of_the_others_failure() -> None:
    plan = gang("worker*2 evaluator")
    started: list[Event] = [RunAccepted(), AttemptPlaced(0, ("host:1",) * 3)]
    started += [ReplicaStarted(each.id, 0) for each in plan.replicas]
    for how in (Exit(message="gpu3 has not answered", reason="HostLost"), Exit(code=1)):
        evaluator = ReplicaExited(ReplicaId("evaluator", 0), 0, 0, how, 10.1, OWN)
        state = fold(plan, [*started, end(0, 10.0, GONE, code=1), evaluator, end(1, 10.2, signal=15)])
        assert state.ending
        assert state.ending.cause
        assert state.ending.cause.replica == worker(0)


def test_of_two_peers_that_are_named_equally_often_the_one_in_the_first_report_is_the_cause() -> None:
    stopped = [end(1, 10.2, signal=15), end(2, 10.3, signal=15)]
    ends = [end(3, 10.0, naming(SILENT, 2), code=1), end(0, 10.1, naming(SILENT, 1), code=1), *stopped]
    assert cause_of(*ends, workers=4).replica == worker(2)
    ends = [end(3, 10.0, naming(GONE, 2), code=1), end(0, 10.1, naming(SILENT, 1, 2), code=1), *stopped]
    assert cause_of(*ends, workers=4).replica == worker(3)  # a lost connection does not tell which peer failed


def test_a_replica_that_was_named_and_stopped_while_it_ended_with_an_exception_is_the_cause() -> None:
    cause = cause_of(end(0, 10.0, naming(GONE, 1), code=1), end(1, 10.2, OWN, signal=15))
    assert (cause.replica, cause.said) == (worker(1), "ValueError: bad row")
    assert cause.exit.message.endswith("worker.0 ended first: connection reset by peer")


def test_a_replica_that_names_a_running_peer_as_gone_is_still_the_first_failure() -> None:
    assert cause_of(end(0, 10.0, naming(GONE, 1), code=1), end(1, 10.2, signal=15)).replica == worker(0)


def test_the_replica_that_most_of_the_others_name_is_the_cause() -> None:
    ends = [end(1, 10.0, naming(SILENT, 0), code=1), end(2, 10.1, naming(SILENT, 3), code=1)]
    ends += [end(0, 10.2, naming(SILENT, 3), code=1), end(3, 12.0, signal=9)]
    assert cause_of(*ends, workers=4).replica == worker(3)


def test_if_the_only_two_replicas_name_each_other_no_replica_is_named() -> None:
    for first, other in ((0, 1), (1, 0)):
        ends = end(first, 10.0, naming(SILENT, other), code=1), end(other, 11.0, naming(SILENT, first), code=1)
        cause = cause_of(*ends)
        assert (cause.replica, cause.failure, cause.reason) == (None, "lost", "Unreachable")
        message = f"worker.0 and worker.1 lost each other; worker.{first} ended first: timed out in a collective"
        assert cause.exit.message == message
        states = state_after(*ends).replicas.values()
        assert [f"{each.phase} {each.reason}" for each in states] == ["FAILED Consequence"] * 2


def test_of_two_replicas_that_name_each_other_it_is_not_the_chief_if_a_third_does_not_name_it() -> None:
    for first, other in ((0, 1), (1, 0)):
        ends = end(first, 10.0, naming(SILENT, other), code=1), end(other, 11.0, naming(SILENT, first), code=1)
        cause = cause_of(*ends, end(2, 11.5, GONE, code=1), workers=3)
        assert (cause.replica, cause.failure, cause.reason) == (worker(1), "lost", "Unreachable")


def test_a_chief_that_all_others_name_is_the_cause_even_if_it_was_the_first_to_report() -> None:
    ends = [end(0, 10.0, naming(SILENT, 1, 2), code=1)]
    ends += [end(index, 10.0 + index, naming(SILENT, 0), code=1) for index in (1, 2)]
    cause = cause_of(*ends, workers=3)
    assert (cause.replica, cause.failure, cause.reason) == (worker(0), "lost", "Unreachable")
    assert cause.exit.message == "could not be reached; worker.1 reported: timed out in a collective"


@pytest.mark.parametrize("reason", ["HostLost", "NodeLost"])
@pytest.mark.parametrize("report", [naming(SILENT, 2), naming(SILENT, 1), SILENT, GONE])
def test_a_replica_on_a_lost_machine_is_the_cause_though_peers_reported_before(reason: str, report: Evidence) -> None:
    lost = ReplicaExited(worker(2), 0, 0, Exit(message="gpu3 has not answered for 1m", reason=reason), 70.0)
    cause = cause_of(end(0, 10.0, report, code=1), end(1, 10.1, signal=15), lost, workers=3)
    assert (cause.replica, cause.failure, cause.reason) == (worker(2), "lost", reason)
    assert cause.exit.message == "gpu3 has not answered for 1m"


def test_a_machine_that_is_lost_after_an_own_failure_is_not_the_cause() -> None:
    lost = ReplicaExited(worker(1), 0, 0, Exit(message="gone", reason="HostLost"), 70.0)
    assert cause_of(end(0, 10.0, OWN, code=1), lost).replica == worker(0)


def test_if_all_report_a_timeout_and_name_no_peer_the_failure_is_a_lost_connection() -> None:
    cause = cause_of(end(0, 10.0, SILENT, code=1), end(1, 10.1, SILENT, code=1))
    assert (cause.replica, cause.failure, cause.reason) == (worker(0), "lost", "WaitedInVain")


def test_a_worker_that_had_finished_is_not_the_cause_of_a_peer_with_an_own_exception() -> None:
    done = end(0, 10.0, code=0)
    assert cause_of(done, end(1, 15.0, GONE, code=1)).replica == worker(0)
    cause = cause_of(done, end(1, 15.0, OWN, code=1))
    assert (cause.replica, cause.reason) == (worker(1), "Exited")


@pytest.mark.parametrize("exit_", [Exit(signal=9, out_of_memory=True), Exit(code=1, out_of_memory=True)])
def test_out_of_memory_is_preferred_to_a_report(exit_: Exit) -> None:
    late = ReplicaExited(worker(1), 0, 0, exit_, 10.3)
    assert cause_of(end(0, 10.0, GONE, code=1), late).failure == "out_of_memory"


def test_the_state_of_each_replica_follows_the_cause_that_was_found() -> None:
    state = state_after(end(0, 10.0, naming(SILENT, 1), code=1), end(1, 12.0, signal=9))
    states = {str(name): f"{each.phase} {each.reason}" for name, each in state.replicas.items()}
    assert states == {"worker.0": "FAILED Consequence", "worker.1": "FAILED Unresponsive"}
    assert (state.phase, state.ending and state.ending.reason) == ("FAILED", "Unresponsive")


def test_a_replica_of_a_hung_gang_that_has_raised_is_the_cause() -> None:
    plan = gang("worker*2")
    stuck = Cause(None, 0, Exit(message="no step for 60 s"), "hang", "Hung")
    replicas = {
        worker(0): ReplicaState(Phase.KILLED, 0, Exit(signal=15), "PeerFailed", 70.0),
        worker(1): ReplicaState(Phase.KILLED, 0, Exit(signal=9), "PeerFailed", 71.0, OWN),
    }
    state = RunState(replicas=replicas, ending=Ending(Phase.FAILED, "Hung", stuck))
    ending = reconsider_cause(plan, state).ending
    assert ending is not None
    assert ending.cause == Cause(
        worker(1), 0, Exit(message="failed and did not end; no step for 60 s"), "crash", "Exited", OWN.said
    )
    quiet = state.replace(replicas={**replicas, worker(1): replicas[worker(1)].replace(evidence=None)})
    assert reconsider_cause(plan, quiet) == quiet


def test_a_peer_that_ended_at_the_time_of_the_first_report_was_not_running_any_more() -> None:
    for at, replica in ((10.0, worker(0)), (10.1, worker(1))):
        cause = cause_of(end(0, 10.0, naming(SILENT, 1), code=1), end(1, at, signal=15))
        assert cause.replica == replica


def test_a_replica_that_only_an_evaluator_names_has_not_lost_the_peer_that_it_names() -> None:
    plan = gang("worker*2 evaluator")
    started: list[Event] = [RunAccepted(), AttemptPlaced(0, ("host:1",) * 3)]
    started += [ReplicaStarted(each.id, 0) for each in plan.replicas]
    evaluator = ReplicaExited(ReplicaId("evaluator", 0), 0, 0, Exit(code=1), 10.1, naming(SILENT, 0))
    state = fold(plan, [*started, end(0, 10.0, naming(SILENT, 1), code=1), evaluator, end(1, 10.2, signal=15)])
    assert state.ending
    assert state.ending.cause
    assert (state.ending.cause.replica, state.ending.cause.reason) == (worker(1), "Unresponsive")


def test_the_cause_of_a_run_that_was_stopped_or_has_no_ending_is_not_reconsidered() -> None:
    state = state_after(end(0, 10.0, naming(SILENT, 1), code=1), end(1, 12.0, signal=9))
    assert state.ending
    report = Cause(worker(0), 0, Exit(code=1), "crash", "Exited")
    for ending in (Ending(Phase.KILLED, "Asked", report, 10.0), None):
        stopped = state.replace(ending=ending)
        assert reconsider_cause(gang("worker*2"), stopped) == stopped
        assert first_report(stopped) == ""
    assert first_report(state.replace(ending=Ending(Phase.FAILED, "Exited", report, 10.0))) == "silent"


EXITS = (Exit(code=0), Exit(code=1), Exit(signal=9), Exit(signal=15), Exit(signal=9, out_of_memory=True))
WORKERS = st.integers(0, 3)
EVIDENCE = st.none() | st.builds(
    Evidence,
    st.sampled_from(["ValueError: bad row", "said by a peer"]),
    st.sampled_from(["", "gone", "silent", "absent"]),
    st.lists(WORKERS.map(worker), max_size=3, unique=True).map(tuple),
)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.tuples(st.sampled_from(EXITS), EVIDENCE), min_size=4, max_size=4), st.permutations(range(4)))
def test_the_cause_is_a_replica_of_the_gang_in_whatever_order_the_ends_are_reported(
    how: list[tuple[Exit, Evidence | None]], order: list[int]
) -> None:
    ends = [
        ReplicaExited(worker(index), 0, 0, exit_, 10.0 + index, None if exit_.ok else evidence)
        for index, (exit_, evidence) in enumerate(how)
    ]
    state = state_after(*ends, workers=4)
    reordered = state_after(*(ends[index] for index in order), workers=4)
    assert reordered.ending == state.ending
    assert reconsider_cause(gang("worker*4"), state) == state
    assert {each.exit for each in state.replicas.values()} == {exit_ for exit_, _ in how}
    ending = state.ending
    assert ending is not None
    assert (ending.phase is Phase.FINISHED) == all(exit_.ok for exit_, _ in how)
    if ending.cause:
        assert ending.cause.replica
        assert state.replicas[ending.cause.replica].phase in (Phase.FAILED, Phase.FINISHED)
