"""Many consecutive runs leave no process, no claim, and no unexpected file."""

from __future__ import annotations

import os

from drumline.run.state import Phase
from scaffold.waiting import wait_until
from scaffold.workspace import LEFT_BY_A_RUN, WARMLY, Run, Workspace

# DRUMLINE_RUNS=200 for a longer test.
WARM_LEFT = ("warm",) if WARMLY else ()
RUNS = int(os.environ.get("DRUMLINE_RUNS", "24"))


def test_consecutive_runs_leave_no_process_file_or_claim(workspace: Workspace) -> None:
    workspace.write_spec("""
        roles: {chief: {run: sleep 0.02 & exit $((DRUMLINE_RUN % 3))}, worker: 2, ps: 1}
        run: exec sleep 1000
        timeouts: {grace: 0.01}
    """)
    temporary = workspace.path / "tmp"  # a separate folder: other tests use that of the machine at the same time
    temporary.mkdir()
    workspace.env["TMPDIR"] = str(temporary)
    for number in range(1, RUNS + 1):
        answer = workspace.run("train", "-d")
        assert answer.out == f"{number}\n", answer.err
        if number % 5 == 0:
            workspace.run("kill", str(number))
    for number in range(1, RUNS + 1):
        run = Run(workspace, str(number))
        wait_until(lambda run=run: run.state.phase.is_final)  # type: ignore[misc]
        if number % 3 == 0 and number % 5:
            assert run.state.phase is Phase.FINISHED
    wait_until(lambda: not workspace.processes())
    assert {path.name for path in workspace.home.iterdir()} <= {
        "runs",
        "last-run",
        "index.sqlite",
        "version",
        *WARM_LEFT,
    }
    for number in range(1, RUNS + 1):
        folder = workspace.home / "runs" / str(number)
        assert {path.name for path in folder.iterdir()} <= LEFT_BY_A_RUN
        assert (folder / "supervisor.log").read_text() == ""
        folders = list((folder / "attempts" / "0").iterdir())
        assert len(folders) == 4
        assert {path.name for each in folders for path in each.iterdir()} <= {"keeper", "log", "marks", "metrics"}
    assert list(temporary.iterdir()) == []
