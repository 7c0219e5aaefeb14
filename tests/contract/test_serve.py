"""What every engine promises of TensorBoard, if it is capable of it: beside a line, once, at one address."""

from __future__ import annotations

from pathlib import Path

import pytest

from boards import write_python
from contract.seat import Office, Watcher, able, watch, workers
from contract.sites import LASTING, Deed, Site
from drumline.engine.abilities import Serving
from drumline.plan.types import TENSORBOARD
from drumline.run.event import Exit, ReplicaExited, ReplicaStarted, StopRequested, TensorBoardServed
from drumline.run.state import Phase


def install(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Install a program that answers as TensorBoard does."""
    monkeypatch.setenv("DRUMLINE_TENSORBOARD", str(write_python(folder)))


def served(watcher: Watcher) -> list[str]:
    return [event.address for event in watcher.told if isinstance(event, TensorBoardServed)]


def test_it_is_started_once_and_taken_up_at_the_same_address(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, tmp_path)
    first = watch(site, tmp_path, LASTING)
    first.loop.wait(able(first.engine, Serving).serve(first.plan))
    first.until(lambda: served(first) and first.starts())
    second = first.again(site)
    second.loop.wait(able(second.engine, Serving).serve(second.plan))
    second.until(lambda: served(second) and second.starts())
    assert served(second) == served(first)[:1]
    assert first.starts() == second.starts() == [TENSORBOARD]
    second.stop(TENSORBOARD)
    second.until(second.ends)
    assert second.exits() == {TENSORBOARD: Exit(code=0)}


def test_one_that_was_never_started_has_ended_when_it_is_stopped(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, tmp_path)
    watcher = watch(site, tmp_path, LASTING)
    watcher.stop(TENSORBOARD)
    watcher.until(watcher.ends)
    (end,) = watcher.ends()
    assert (end.replica, end.exit.seen) == (TENSORBOARD, False)


def test_it_outlives_attempts_and_supervisors_and_ends_with_the_run(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, tmp_path)
    plan = workers(site, Deed(until=1, code=1)).replace(tensorboard=True)
    plan = plan.replace(
        replicas=(plan.replicas[0].replace(argv=site.command(Deed(until=1, code=1), LASTING)),),
        restart=plan.restart.replace(crash=1, early=1),
    )
    office = Office(site, tmp_path / "home", plan)
    office.begin()
    office.until(lambda: office.state.tensorboard_address)
    address = office.state.tensorboard_address
    office.replace()
    office.begin()
    site.open(1)
    office.until(lambda: (office.state.attempt, office.state.phase) == (1, Phase.RUNNING))
    assert office.state.tensorboard_address == address
    office.supervisor.take(StopRequested(at_seconds=office.loop.time()))
    state = office.until_over()
    assert state.phase is Phase.KILLED
    assert state.tensorboard
    assert (state.tensorboard.phase, state.warnings) == (Phase.KILLED, ())
    told = [each for each in office.events if isinstance(each, ReplicaStarted | ReplicaExited)]
    assert told[-1].replica == TENSORBOARD
