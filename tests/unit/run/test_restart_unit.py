"""Replicas that restart while others continue: the cause, and the states of those that are stopped for it."""

from __future__ import annotations

import pytest

from scaffold.gangs import gang
from scaffold.scenarios import ScenarioReplay


def replayed(plan: str, *events: str) -> ScenarioReplay:
    replay = ScenarioReplay(gang(plan))
    for words in ("running", "stepped", *events):
        replay.apply(words)
    return replay


@pytest.mark.parametrize(("code", "reason"), [(0, "LeftEarly"), (1, "Exited")])
def test_a_restart_has_the_reason_of_the_exit_that_caused_it(code: int, reason: str) -> None:
    (revival,) = replayed("chief worker ps crash=1", f"ps.0 exits {code}").state.revivals
    assert (str(revival.cause.replica), revival.cause.reason) == ("ps.0", reason)


def test_a_replica_that_fails_while_it_is_stopped_for_a_restart_follows_and_one_that_obeys_is_killed() -> None:
    replay = replayed("chief worker*2 ps crash=1", "ps.0 exits 1 at 100", "worker.0 exits 1 at 101")
    replay.apply("worker.1 signal 15 at 102")
    states = "worker.0 FAILED Consequence, worker.1 KILLED PeerFailed, ps.0 FAILED Exited"
    assert replay.describe_states() == f"chief.0 RUNNING, {states}"


def test_a_replica_that_fails_at_the_same_time_as_the_one_that_restarts_is_charged_to_no_budget() -> None:
    state = replayed("chief worker ps*2 crash=1", "ps.0 exits 1 at 100", "ps.1 exits 1 at 100").state
    assert (state.ending, state.restarts, len(state.revivals)) == (None, {"crash": 1}, 1)


def test_a_replica_that_failed_before_the_one_that_restarts_is_charged_to_the_budget_too() -> None:
    state = replayed("chief worker ps*2 crash=2", "ps.0 exits 1 at 100", "ps.1 exits 1 at 99").state
    assert (state.ending, state.restarts, len(state.revivals)) == (None, {"crash": 2}, 2)
