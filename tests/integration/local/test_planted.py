"""A replica puts something else in the place of its own files: it can still be ended, shown and removed."""

from __future__ import annotations

import os

import pytest

from drumline.run.state import Phase
from drumline.run.traces import ERROR, GROUP, LOG, MARKS, METRICS, REPORT, STACKS, TRACE
from scaffold.waiting import wait_until
from scaffold.workspace import Workspace

PLANT = """
import os, sys, time
kind, name = sys.argv[1:]
path = f"{os.environ['DRUMLINE_TRACE']}/{name}"
match kind:
    case "pipe":
        os.mkfifo(f"{path}.planted")
    case "folder":
        os.mkdir(f"{path}.planted")
    case "device":
        os.symlink("/dev/zero", f"{path}.planted")
    case "sparse":
        with open(f"{path}.planted", "wb") as file:
            file.truncate(1 << 40)
    case "empty":
        open(f"{path}.planted", "wb").close()
    case "lie":
        with open(f"{path}.planted", "wb") as file:
            file.write(b'{"pid": 2147483647, "ticks": 1, "boot": "none"}\\n{"code": 0, "at": 1}\\n')
if os.path.lexists(path):
    os.unlink(path)
os.rename(f"{path}.planted", path)
open("planted", "w").close()
time.sleep(1000)
"""
PLANTED = [
    *((name, kind) for name in (LOG, TRACE, REPORT, ERROR, MARKS, METRICS) for kind in ("pipe", "device")),
    *((TRACE, kind) for kind in ("folder", "sparse", "empty", "lie")),
    (LOG, "folder"), (MARKS, "sparse"), (METRICS, "sparse"), (STACKS, "pipe"), (GROUP, "pipe"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "kind"), PLANTED)
def test_a_run_ends_whatever_a_replica_puts_in_the_place_of_its_files(
    workspace: Workspace, name: str, kind: str
) -> None:
    workspace.write("plant.py", PLANT)
    run = workspace.train(f"run: python plant.py {kind} {name}")
    wait_until(lambda: workspace.exists("planted"))
    shown = (["status", "1"], ["logs", "1"], ["monitor", "1", "--once"], ["kill", "--force", "1"])
    assert [answer.code for answer in workspace.run_in_turn(*shown)] == [0, 0, 0, 0]
    run.wait_for(Phase.FINISHED if kind == "lie" else Phase.KILLED)  # it may lie about its own end
    workspace.run_in_turn(["status"], ["logs", "1"], ["goodput", "1"], ["rm", "1"])
    assert not run.path.exists()


@pytest.mark.parametrize("name", ["launch.json", "events.jsonl", "plan.json", "supervisor.lock"])
def test_a_run_that_is_over_is_shown_and_removed_whatever_is_in_the_place_of_its_files(
    workspace: Workspace, name: str
) -> None:
    run = workspace.train("run: 'true'")
    run.wait_for(Phase.FINISHED)
    (run.path / name).unlink()
    os.mkfifo(run.path / name)
    shown = (["status"], ["status", "1"], ["logs", "1"], ["events", "1"], ["rm", "1"])
    assert workspace.run_in_turn(*shown)[-1].code == 0
    assert not run.path.exists()
