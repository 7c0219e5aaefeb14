"""What decides the end of a run, told as stories; see `stories.txt`."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from drumline.plan.types import ReplicaId
from drumline.run.decision import AttemptEnded
from drumline.run.event import AttemptPlaced, Event, Exit, ReplicaExited, ReplicaStarted, RunAccepted
from drumline.run.failure import describe_exit
from drumline.run.fold import new_run
from drumline.run.machine import transition
from drumline.run.state import Phase, RunState
from scaffold.decisions import decided, fold
from scaffold.gangs import gang
from scaffold.scenarios import Scenario, ScenarioReplay, read_stories

STORIES = read_stories(Path(__file__).with_name("stories.txt"))


@pytest.mark.parametrize("story", STORIES, ids=[story.title for story in STORIES])
def test_a_run_goes_as_its_story_tells(story: Scenario) -> None:
    telling = ScenarioReplay(story.plan)
    for number, text in story.lines:
        if text.startswith("="):
            assert telling.stand() == text.removeprefix("=").strip(), f"line {number}"
            continue
        rest, _, phase = (part.strip() for part in text.partition("::"))
        words, _, expected = (part.strip() for part in rest.partition("->"))
        assert telling.tell(words) == expected, f"line {number}: {text}"
        if phase:
            assert telling.state.phase == phase, f"line {number}: {text}"
    assert fold(story.plan, telling.events) == telling.state


def tell(words: str, *, plan: str) -> RunState:
    """Where a run stands after `this; and this`."""
    telling = ScenarioReplay(gang(plan))
    for part in words.split("; "):
        telling.tell(part)
    return telling.state


def test_why_each_attempt_ended_is_remembered_and_what_it_cost() -> None:
    again = "worker.0 exits 1; running; worker.0 signal 15; timer delay; running; worker.0 exits 3; timer delay"
    state = tell(f"running; {again}", plan="worker crash=5 preempted=5")
    assert [(cause.attempt, describe_exit(cause.exit)) for cause in state.causes] == [
        (0, "exit code 1"),
        (1, "killed by signal 15 (TERM)"),
        (2, "exit code 3"),
    ]
    assert state.restarts == {"crash": 2, "preempted": 1}
    assert state.attempt == 3


def test_the_end_of_an_attempt_is_recorded_once() -> None:
    telling = ScenarioReplay(gang("worker*3"))
    for words in ("running", "worker.0 exits 1", "worker.1 signal 9", "worker.2 signal 9"):
        telling.tell(words)
    decisions = [each for _, several in decided(telling.plan, telling.events) for each in several]
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
    assert tell(f"accepted; placed; {words}", plan="worker*2 evaluator").warnings == warnings


def test_a_failure_that_is_told_late_is_charged_to_no_budget_and_gives_no_warning() -> None:
    plan = "chief worker*2 ps crash=1 preempted=0"
    assert tell("running; stepped; worker.0 exits 1 at 90; ps.0 signal 15 at 100", plan=plan).restarts == {"crash": 1}
    late = tell("running; stepped; ps.0 signal 15 at 100; worker.0 exits 1 at 90", plan=plan)
    assert (late.restarts, late.warnings) == ({}, ())


def test_how_many_workers_a_training_goes_on_with_is_said() -> None:
    state = tell("running; stepped; worker.0 exits 1; worker.1 exits 1", plan="chief worker*3 ps")
    failed = "(exit code 1), and its restart budget (crash: 0) is used up; the training continues with"
    assert state.warnings == (f"worker.0 failed {failed} 2 workers", f"worker.1 failed {failed} one worker")
    assert state.forgiven == (ReplicaId("worker", 0), ReplicaId("worker", 1))


def test_an_evaluator_that_fails_is_said_loudly_once() -> None:
    words = "running; evaluator.0 exits 3 at 100; chief.0 exits 1 at 102; worker.0 exits 1 at 101"
    assert tell(words, plan="chief worker*2 evaluator").warnings == (
        "evaluator.0 failed (exit code 3); the training continues without it",
    )


def test_that_nothing_is_started_again_is_said_with_what_would() -> None:
    words = "accepted; placed; everybody starts; worker.0 exits 1"
    state = tell(words, plan="worker crash=3")
    assert state.warnings == (
        "no restart, since worker.0 failed before its first step; `restart: {early: 3}` allows it",
    )
    assert state.ending
    assert state.ending.cause
    assert state.ending.cause.failure == "early"
    assert tell(words, plan="worker").warnings == ()  # nor would any other


def test_what_the_engine_warns_of_is_kept_once_and_changes_nothing_else() -> None:
    before = tell("running", plan="worker*2")
    assert tell("running; warned no limit; warned no limit", plan="worker*2") == before.with_warning("no limit")


def test_a_step_is_of_its_attempt_and_of_no_other() -> None:
    assert tell("running; stepped", plan="worker").stepped
    assert not tell("running; stepped; worker.0 exits 1; stepped 0", plan="worker crash=1").stepped
    assert tell("running; stepped; worker.0 exits 1; running; stepped", plan="worker crash=1").stepped


def test_a_delay_grows_from_restart_to_restart_whatever_the_class() -> None:
    telling = ScenarioReplay(gang("worker crash=2 lost=2 backoff_initial_seconds=5 backoff_factor=3"))
    telling.tell("running")
    told = []
    for end in ("exits 1", "unseen", "exits 1", "unseen"):
        told.append(telling.tell(f"worker.0 {end}"))
        telling.tell("delay 1")
        telling.tell("timer delay")
        telling.tell("running")
    assert told == ["start 1", "choose 5", "choose 15", "choose 45"]


@pytest.mark.parametrize("code", [0, 1])
def test_two_thousand_replicas_are_no_burden(code: int) -> None:
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
    assert time.process_time() - before < 3.0  # a tenth of that on a quiet machine


def test_ends_that_are_told_backwards_still_name_the_first() -> None:
    plan = gang("worker*100")
    events: list[Event] = [RunAccepted(), AttemptPlaced(0, ("host:1",) * 100)]
    events += [ReplicaExited(replica.id, 0, 0, Exit(1), 1000.0 - replica.id.index) for replica in plan.replicas]
    state = fold(plan, events)
    assert state.ending
    assert state.ending.cause
    assert state.ending.cause.replica == ReplicaId("worker", 99)
    assert {each.reason for name, each in state.replicas.items() if name.index < 99} == {"Consequence"}
