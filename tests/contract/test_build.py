"""The contract of environments: ready before the gang starts, and built once."""

from __future__ import annotations

from pathlib import Path

from drumline.engine.abilities import Preparing
from drumline.plan.types import Environment, Plan, ReplicaId
from drumline.run.event import ReplicaExited, ReplicaStarted
from drumline.run.state import Phase
from scaffold.supervised import FIRST, SessionRecorder, SupervisedRun, cast, require_ability
from scaffold.testbeds import Behavior, EngineTestBed

HELPER = ReplicaId("build", 0)
ENVIRONMENT = Environment(("numpy",))


def equipped(testbed: EngineTestBed, text: str = "build worker", **behaviors: Behavior) -> Plan:
    testbed.have_environment(ENVIRONMENT)
    plan = cast(testbed, text, {"worker.0": Behavior(("working",)), **behaviors})
    assert plan.environment == ENVIRONMENT
    return plan


def test_for_an_existing_environment_only_the_end_is_reported(testbed: EngineTestBed, tmp_path: Path) -> None:
    recorder = SessionRecorder(testbed, tmp_path / "run", equipped(testbed))
    recorder.loop.wait(require_ability(recorder.session, Preparing).prepare(recorder.plan, HELPER))
    recorder.until(recorder.ends)
    assert recorder.starts() == []
    (end,) = recorder.ends()
    assert (end.replica, end.attempt, end.exit.ok) == (HELPER, 0, True)
    assert end.exit.message


def test_the_end_of_a_build_is_reported_again_to_the_next_supervisor(testbed: EngineTestBed, tmp_path: Path) -> None:
    first = SessionRecorder(testbed, tmp_path / "run", equipped(testbed))
    first.loop.wait(require_ability(first.session, Preparing).prepare(first.plan, HELPER))
    second = first.again(testbed)
    second.loop.wait(require_ability(second.session, Preparing).prepare(second.plan, HELPER))
    second.until(second.ends)
    assert second.exits()[HELPER].ok


def test_a_run_builds_then_prepares_data_then_trains(testbed: EngineTestBed, tmp_path: Path) -> None:
    supervised = SupervisedRun(
        testbed, tmp_path / "home", equipped(testbed, "build prepare worker", prepare=Behavior(("making",), until=1))
    )
    supervised.begin()
    supervised.until(lambda: "making" in supervised.log(ReplicaId("prepare", 0)))
    supervised.replace()
    supervised.begin()
    assert supervised.state.phase is Phase.BUILDING
    testbed.open(1)
    assert supervised.until_over().phase is Phase.FINISHED
    told = [str(each.replica) for each in supervised.events if isinstance(each, ReplicaExited)]
    assert list(dict.fromkeys(told)) == ["build", "prepare", "worker.0"]
    assert HELPER not in {each.replica for each in supervised.events if isinstance(each, ReplicaStarted)}
    assert "working" in supervised.log(FIRST)
