"""Runs on the fake engine, with real supervisors and all commands: a plan can name it, and a spec cannot."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from drumline.engine.fake.behavior import FakeBehavior, LogLine, command_of
from drumline.plan.types import Plan
from drumline.run.event import Exit
from drumline.run.state import Phase
from drumline.store.folder import create_folder
from drumline.store.launch import write_launch
from scaffold.plans import plan_of
from scaffold.waiting import wait_until
from scaffold.workspace import Run, Workspace

SPEC = "framework: plain\nroles: {worker: 2}\nrestart: 1"
ENDLESS = FakeBehavior((LogLine("$DRUMLINE_INDEX is here"),), exit=None)


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    place = Workspace(tmp_path / "workspace")
    try:
        yield place
        place.leave()
    finally:
        place.clear()


def play(workspace: Workspace, *acts: FakeBehavior) -> Run:
    """Start a run of two fake workers with these behaviors."""
    folder = create_folder(workspace.home)
    plan = plan_of(SPEC, run=folder.id).replace(engine="fake")
    write_launch(folder, _with_command(plan, command_of(*acts)), spec=b"", directory=workspace.project, at=time.time())
    assert workspace.run("supervise", folder.id).code == 0
    return Run(workspace, folder.id)


def _with_command(plan: Plan, argv: tuple[str, ...]) -> Plan:
    return plan.replace(replicas=tuple(replica.replace(argv=argv) for replica in plan.replicas))


def test_a_run_of_the_fake_engine_finishes_and_is_shown_like_any_other(workspace: Workspace) -> None:
    again = FakeBehavior((LogLine("attempt 1"), LogLine("late", 0.01)), after_seconds=0.02)
    run = play(workspace, FakeBehavior((LogLine("attempt 0"),), Exit(code=3)), again)
    assert workspace.run("wait", run.id).code == 0
    lines = workspace.run("logs", run.id).out.splitlines()
    said = [text.rpartition("] ")[2] for text in lines if text.startswith("1.worker.0") and "-->" not in text]
    assert [text for text in said if ":" not in text] == ["attempt 0", "attempt 1", "late"]
    assert "exit code 3" in workspace.run("events", run.id).out
    assert "plain on fake" in workspace.run("status", run.id).out
    assert run.wait_for(Phase.FINISHED).attempt == 1


def test_a_run_of_the_fake_engine_outlives_its_supervisor_and_can_be_killed(workspace: Workspace) -> None:
    run = play(workspace, ENDLESS)
    run.wait_started()
    run.kill_supervisor()
    assert workspace.run("supervise", run.id).code == 0
    wait_until(lambda: run.log("worker.1") == b"1 is here\n")
    run.kill_supervisor()
    assert workspace.run("kill", run.id) == (0, f"killed run {run.id}; none of its processes is left\n", "")
    assert run.exit("worker.0") == Exit(signal=15)
