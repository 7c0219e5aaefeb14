"""The state machine of a run: scenarios of `scenarios.txt` and single properties."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from drumline.plan.types import ReplicaId
from drumline.run.action import SetTimer
from drumline.run.decision import AttemptEnded
from drumline.run.event import (
    AttemptPlaced,
    Event,
    Exit,
    ReplicaExited,
    ReplicaStarted,
    RunAccepted,
    SupervisorReturned,
    TimerFired,
)
from drumline.run.failure import describe_exit
from drumline.run.fold import new_run
from drumline.run.machine import transition
from drumline.run.state import Phase, RunState
from scaffold.decisions import decided, fold, step
from scaffold.gangs import gang
from scaffold.scenarios import Scenario, ScenarioReplay, read_scenarios

SCENARIOS = read_scenarios(Path(__file__).with_name("scenarios.txt"))


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[scenario.title for scenario in SCENARIOS])
def test_each_event_of_a_scenario_has_the_expected_actions_and_state(scenario: Scenario) -> None:
    replay = ScenarioReplay(scenario.plan)
    for number, text in scenario.lines:
        if text.startswith("="):
            assert replay.describe_states() == text.removeprefix("=").strip(), f"line {number}"
            continue
        rest, _, phase = (part.strip() for part in text.partition("::"))
        words, _, expected = (part.strip() for part in rest.partition("->"))
        assert replay.apply(words) == expected, f"line {number}: {text}"
        if phase:
            assert replay.state.phase == phase, f"line {number}: {text}"
    assert fold(scenario.plan, replay.events) == replay.state


def replay_state(words: str, *, plan: str) -> RunState:
    """Return the state of a run after `this; and this`."""
    replay = ScenarioReplay(gang(plan))
    for part in words.split("; "):
        replay.apply(part)
    return replay.state


def test_the_cause_of_each_attempt_and_its_used_budget_are_recorded() -> None:
    again = "worker.0 exits 1; running; worker.0 signal 15; timer delay; running; worker.0 exits 3; timer delay"
    state = replay_state(f"running; {again}", plan="worker crash=5 preempted=5")
    assert [(cause.attempt, describe_exit(cause.exit)) for cause in state.causes] == [
        (0, "exit code 1"),
        (1, "killed by signal 15 (TERM)"),
        (2, "exit code 3"),
    ]
    assert state.restarts == {"crash": 2, "preempted": 1}
    assert state.attempt == 3


def test_the_end_of_an_attempt_is_recorded_once() -> None:
    replay = ScenarioReplay(gang("worker*3"))
    for words in ("running", "worker.0 exits 1", "worker.1 signal 9", "worker.2 signal 9"):
        replay.apply(words)
    decisions = [each for _, several in decided(replay.plan, replay.events) for each in several]
    assert [each.attempt for each in decisions if isinstance(each, AttemptEnded)] == [0]


@pytest.mark.parametrize(
    ("words", "warnings"),
    [
        ("evaluator.0 waits: no room", ()),
        ("evaluator.0 never starts: no image", ("evaluator.0 cannot start: no image",)),
        ("worker.0 never starts: no image", ()),
    ],
)
def test_a_warning_names_a_replica_that_cannot_start_unless_the_attempt_ends_by_it(
    words: str, warnings: tuple[str, ...]
) -> None:
    assert replay_state(f"accepted; placed; {words}", plan="worker*2 evaluator").warnings == warnings


def test_a_failure_that_is_reported_late_is_charged_to_no_budget_and_gives_no_warning() -> None:
    plan = "chief worker*2 ps crash=1 preempted=0"
    assert replay_state("running; stepped; worker.0 exits 1 at 90; ps.0 signal 15 at 100", plan=plan).restarts == {
        "crash": 1
    }
    late = replay_state("running; stepped; ps.0 signal 15 at 100; worker.0 exits 1 at 90", plan=plan)
    assert (late.restarts, late.warnings) == ({}, ())


def test_a_warning_states_how_many_workers_remain() -> None:
    state = replay_state("running; stepped; worker.0 exits 1; worker.1 exits 1", plan="chief worker*3 ps")
    failed = "(exit code 1), and its restart budget (crash: 0) is used up; the training continues with"
    assert state.warnings == (f"worker.0 failed {failed} 2 workers", f"worker.1 failed {failed} one worker")
    assert state.forgiven == (ReplicaId("worker", 0), ReplicaId("worker", 1))


def test_an_evaluator_that_fails_gives_one_warning() -> None:
    words = "running; evaluator.0 exits 3 at 100; chief.0 exits 1 at 102; worker.0 exits 1 at 101"
    assert replay_state(words, plan="chief worker*2 evaluator").warnings == (
        "evaluator.0 failed (exit code 3); the training continues without it",
    )


def test_a_failure_before_the_first_step_gives_a_warning_with_the_budget_that_would_allow_a_restart() -> None:
    words = "accepted; placed; all start; worker.0 exits 1"
    state = replay_state(words, plan="worker crash=3")
    assert state.warnings == (
        "no restart, since worker.0 failed before its first step; `restart: {early: 3}` allows it",
    )
    assert state.ending
    assert state.ending.cause
    assert state.ending.cause.failure == "early"
    assert replay_state(words, plan="worker").warnings == ()  # without a budget there is no warning


def test_a_warning_of_the_engine_is_kept_once_and_changes_nothing_else() -> None:
    before = replay_state("running", plan="worker*2")
    assert replay_state("running; warned no limit; warned no limit", plan="worker*2") == before.with_warning("no limit")


def test_a_first_step_counts_for_its_attempt_only() -> None:
    assert replay_state("running; stepped", plan="worker").stepped
    assert not replay_state("running; stepped; worker.0 exits 1; stepped 0", plan="worker crash=1").stepped
    assert replay_state("running; stepped; worker.0 exits 1; running; stepped", plan="worker crash=1").stepped


def test_a_delay_grows_from_restart_to_restart_whatever_the_class() -> None:
    replay = ScenarioReplay(gang("worker crash=2 lost=2 backoff_initial_seconds=5 backoff_factor=3"))
    replay.apply("running")
    chosen = []
    for end in ("exits 1", "unseen", "exits 1", "unseen"):
        chosen.append(replay.apply(f"worker.0 {end}"))
        replay.apply("delay 1")
        replay.apply("timer delay")
        replay.apply("running")
    assert chosen == ["start 1", "choose 5", "choose 15", "choose 45"]


def test_the_time_limit_of_a_run_is_one_timer_for_all_attempts() -> None:
    plan = gang("worker crash=1 run=60")
    state, first = step(plan, new_run(plan), RunAccepted())
    for event in (
        AttemptPlaced(0, ("host:1",)),
        ReplicaStarted(ReplicaId("worker", 0), 0),
        TimerFired("old", 0),
        ReplicaExited(ReplicaId("worker", 0), 0, 0, Exit(code=1), 100.0),
    ):
        state, _ = step(plan, state, event)
    assert state.attempt == 1
    _, later = step(plan, state, SupervisorReturned())
    for actions in (first, later):
        assert SetTimer("run", 0, 60.0) in actions


@pytest.mark.parametrize("code", [0, 1])
def test_two_thousand_replicas_take_less_than_three_seconds(code: int) -> None:
    plan = gang("worker*2000")
    names = [replica.id for replica in plan.replicas]
    events: list[Event] = [RunAccepted(), AttemptPlaced(0, ("host:1",) * 2000)]
    events += [ReplicaStarted(name, 0) for name in names]
    events += [ReplicaExited(name, 0, 0, Exit(code), 100.0) for name in names]
    before = time.process_time()
    state = new_run(plan)
    for event in events:
        state = transition(plan, state, event).state
    assert state.phase is (Phase.FAILED if code else Phase.FINISHED)
    assert time.process_time() - before < 3.0  # 0.3 s on an idle machine


def test_ends_that_are_reported_in_reverse_order_still_name_the_first() -> None:
    plan = gang("worker*100")
    events: list[Event] = [RunAccepted(), AttemptPlaced(0, ("host:1",) * 100)]
    events += [ReplicaExited(replica.id, 0, 0, Exit(1), 1000.0 - replica.id.index) for replica in plan.replicas]
    state = fold(plan, events)
    assert state.ending
    assert state.ending.cause
    assert state.ending.cause.replica == ReplicaId("worker", 99)
    assert {each.reason for name, each in state.replicas.items() if name.index < 99} == {"Consequence"}
