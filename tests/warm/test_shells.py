"""Runs with a shell command line: they start warm, and commands show the line as it is in the spec."""

from __future__ import annotations

import json
import os
import sys

import pytest

from drumline.run.event import Exit, ReplicaStarted
from drumline.run.state import Phase
from scaffold.waiting import wait_until
from scaffold.workspace import Run, Workspace

SHOW = """
import json, os, sys
print(json.dumps([sys.argv, os.getcwd(), os.environ.get("A"), os.environ["PWD"], sys.path[0]]))
"""
needs_dash = pytest.mark.skipif(os.path.realpath("/bin/sh") != os.path.realpath("/bin/dash"), reason="`sh` is not dash")


def notes(run: Run) -> set[str]:
    return {event.note for event in run.events if isinstance(event, ReplicaStarted)}


@pytest.mark.parametrize(
    "run",
    [
        "cd app && A=1 PYTHON show.py --lr 0.1 $NONE",
        "|\n  export A=1\n  cd app\n  PYTHON show.py \\\n    --lr 0.1\n",
        pytest.param("[cd app, export A=1, PYTHON show.py --lr 0.1]", marks=needs_dash),
        "{argv: [bash, -c, 'cd app && export A=1 && exec PYTHON show.py --lr \"$0\"', '0.1']}",
        "{argv: [/bin/sh, -ec, 'cd app; A=1 PYTHON show.py --lr 0.1']}",
    ],
)
def test_a_shell_command_that_starts_python_starts_warm(workspace: Workspace, run: str) -> None:
    app = workspace.project / "app"
    app.mkdir()
    (app / "show.py").write_text(SHOW)
    trained = workspace.train(f"run: {run.replace('PYTHON', sys.executable)}\nwarm: true\n")
    trained.wait_for(Phase.FINISHED)
    assert notes(trained) == {"warm"}
    shown = json.loads(trained.log("worker.0"))
    assert shown == [["show.py", "--lr", "0.1"], str(app), "1", str(app), str(app)]
    assert os.path.basename(trained.plan.replicas[0].argv[0]) in ("sh", "bash")  # noqa: PTH119
    assert ", warm" in workspace.run("events", trained.id).out


@needs_dash
@pytest.mark.parametrize("run", ["cd . && PYTHON dies.py", "[cd ., PYTHON dies.py]"])
def test_if_a_script_is_killed_the_exit_code_is_that_of_its_shell(workspace: Workspace, run: str) -> None:
    workspace.write("dies.py", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    for warm in ("false", "true"):
        trained = workspace.train(f"run: {run.replace('PYTHON', sys.executable)}\nwarm: {warm}\nrestart: 0\n")
        trained.wait_for(Phase.FAILED)
        assert trained.exit("worker.0") == Exit(code=137)
        assert trained.log("worker.0") == b"Killed\n"
    assert notes(trained) == {"warm"}


def test_stacks_of_a_warm_replica_in_a_shell_are_those_of_the_script(workspace: Workspace) -> None:
    workspace.write("rests.py", "import signal\ndef rest():\n    open('up', 'w').close()\n    signal.pause()\nrest()\n")
    run = workspace.train(f"run: cd . && {sys.executable} rests.py\nwarm: true\ntimeouts: {{grace: 1}}\n")
    wait_until(lambda: workspace.exists("up"))
    assert notes(run) == {"warm"}
    shown = wait_until(lambda: workspace.run("stacks", run.id).out)
    assert "rest (" in shown
    assert "shell" not in shown
    assert workspace.run("kill", run.id).code == 0
    run.wait_for(Phase.KILLED)
