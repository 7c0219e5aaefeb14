"""The contract of engines with TensorBoard: beside a gang, once, at one address."""

from __future__ import annotations

from pathlib import Path

import pytest

from drumline.engine.abilities import Serving
from drumline.plan.types import TENSORBOARD
from drumline.run.event import Exit, ReplicaExited, ReplicaStarted, StopRequested, TensorBoardServed
from drumline.run.state import Phase
from scaffold.fake_tensorboard import write_python
from scaffold.supervised import SessionRecorder, SupervisedRun, require_ability, watch, workers
from scaffold.testbeds import RUNS_UNTIL_STOPPED, Behavior, EngineTestBed


def install(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Install a program that answers as TensorBoard does."""
    monkeypatch.setenv("DRUMLINE_TENSORBOARD", str(write_python(folder)))


def served(recorder: SessionRecorder) -> list[str]:
    return [event.address for event in recorder.told if isinstance(event, TensorBoardServed)]


def test_tensorboard_is_started_once_and_adopted_at_the_same_address(
    testbed: EngineTestBed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, tmp_path)
    first = watch(testbed, tmp_path, RUNS_UNTIL_STOPPED)
    first.loop.wait(require_ability(first.session, Serving).serve(first.plan))
    first.until(lambda: served(first) and first.starts())
    second = first.again(testbed)
    second.loop.wait(require_ability(second.session, Serving).serve(second.plan))
    second.until(lambda: served(second) and second.starts())
    assert served(second) == served(first)[:1]
    assert first.starts() == second.starts() == [TENSORBOARD]
    second.stop(TENSORBOARD)
    second.until(second.ends)
    assert second.exits() == {TENSORBOARD: Exit(code=0)}


def test_a_tensorboard_that_was_never_started_ends_unseen_when_it_is_stopped(
    testbed: EngineTestBed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, tmp_path)
    recorder = watch(testbed, tmp_path, RUNS_UNTIL_STOPPED)
    recorder.stop(TENSORBOARD)
    recorder.until(recorder.ends)
    (end,) = recorder.ends()
    assert (end.replica, end.exit.seen) == (TENSORBOARD, False)


def test_tensorboard_outlives_attempts_and_supervisors_and_ends_with_the_run(
    testbed: EngineTestBed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, tmp_path)
    plan = workers(testbed, Behavior(until=1, code=1)).replace(tensorboard=True)
    plan = plan.replace(
        replicas=(plan.replicas[0].replace(argv=testbed.command(Behavior(until=1, code=1), RUNS_UNTIL_STOPPED)),),
        restart=plan.restart.replace(crash=1, early=1),
    )
    supervised = SupervisedRun(testbed, tmp_path / "home", plan)
    supervised.begin()
    supervised.until(lambda: supervised.state.tensorboard_address)
    address = supervised.state.tensorboard_address
    supervised.replace()
    supervised.begin()
    testbed.open(1)
    supervised.until(lambda: (supervised.state.attempt, supervised.state.phase) == (1, Phase.RUNNING))
    assert supervised.state.tensorboard_address == address
    supervised.supervisor.take(StopRequested(at_seconds=supervised.loop.time()))
    state = supervised.until_over()
    assert state.phase is Phase.KILLED
    assert state.tensorboard
    assert (state.tensorboard.phase, state.warnings) == (Phase.KILLED, ())
    told = [each for each in supervised.events if isinstance(each, ReplicaStarted | ReplicaExited)]
    assert told[-1].replica == TENSORBOARD
