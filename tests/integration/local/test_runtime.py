"""Files that a script writes through drumline.runtime are with its incarnation, and are removed with its run."""

from __future__ import annotations

import json
import sys

import pytest

from drumline.run.state import Phase
from drumline.runtime.progress import read_report
from scaffold.workspace import Workspace

SCRIPT = """
import os, signal
from drumline import runtime

runtime.record_errors()
runtime.report(step=runtime.index() + 10 * runtime.attempt(), loss=0.5)
private = runtime.write_dir(runtime.output_dir())
(private / "weights").touch()
if runtime.attempt() == 0 and not runtime.is_chief():
    raise RuntimeError(f"{runtime.role()} {runtime.index()} has had enough")
while runtime.attempt() == 0:
    signal.pause()
"""


@pytest.mark.parametrize("roles", ["{worker: 2}", "{chief: 1, worker: 1}"])
def test_reports_and_errors_are_recorded_for_each_incarnation(workspace: Workspace, roles: str) -> None:
    workspace.write("script.py", SCRIPT)
    run = workspace.train(f"run: {sys.executable} script.py\nroles: {roles}\nrestart: 1")
    run.wait_for(Phase.FINISHED)
    chief, other, index = ("chief.0", "worker.0", 0) if "chief" in roles else ("worker.0", "worker.1", 1)
    for attempt in (0, 1):
        for replica, step in ((chief, 0), (other, index)):
            path = run.trace_dir(replica, attempt) / "report"
            report = read_report(path)
            if attempt or replica == other:  # the chief may have been stopped before it printed anything
                assert report is not None
                assert (report.step, report.values) == (step + 10 * attempt, {"loss": 0.5})
    error = json.loads((run.trace_dir(other) / "error").read_text())
    assert (error["type"], error["message"]) == ("RuntimeError", f"worker {index} has had enough")
    assert "script.py" in error["traceback"]
    assert not (run.trace_dir(other, 1) / "error").exists()
    assert (run.path / "output" / "weights").exists()
    assert not list(run.path.glob("attempts/*/*/private-*"))


def test_private_output_of_a_killed_replica_is_removed_with_its_run(workspace: Workspace) -> None:
    workspace.write(
        "script.py", SCRIPT.replace("raise RuntimeError", "os.kill(os.getpid(), signal.SIGKILL)\n    print")
    )
    run = workspace.train(f"run: {sys.executable} script.py\nroles: {{worker: 2}}")
    run.wait_for(Phase.FAILED)
    assert list(run.path.glob("attempts/0/worker.1/private-*/weights"))
    assert workspace.run("rm", run.id).code == 0
    assert not run.path.exists()
