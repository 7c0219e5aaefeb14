"""`drumline logs`: before, during and after a run, across its attempts."""

from __future__ import annotations

import json
import re

from drumline.run.state import Phase
from drumline.store.logs import MARK
from scaffold.processes import read_to
from scaffold.waiting import PATIENCE_SECONDS, wait_until
from scaffold.workspace import Run, Workspace


def texts(output: str) -> list[str]:
    """Return the texts of the lines, without prefixes."""
    return [line.partition("| ")[2].partition("] ")[2] for line in output.splitlines()]


def spoken(output: str) -> list[str]:
    """Return the lines of replicas, without lines about states."""
    return [text for text in texts(output) if not re.match(r"-->|Exit Code|Reason|Message|Signal", text)]


def test_following_logs_continues_across_a_restart_and_ends_with_the_run(workspace: Workspace) -> None:
    workspace.write(
        "flaky.sh",
        """
        echo attempt $DRUMLINE_ATTEMPT
        until [ -e go$DRUMLINE_ATTEMPT ]; do sleep 0.05; done
        exit $((1 - DRUMLINE_ATTEMPT))
        """,
    )
    run = workspace.train("run: sh flaky.sh\nrestart: 1")
    follower = workspace.command("logs", "-f", run.id)
    shown = ""
    for attempt in (0, 1):
        shown += read_to(follower, f"attempt {attempt}\n")
        workspace.write(f"go{attempt}", "")
    rest, _ = follower.communicate(timeout=PATIENCE_SECONDS)
    assert follower.returncode == 0
    assert spoken(shown + rest) == ["attempt 0", "attempt 1"]
    assert texts(shown + rest)[-1] == "--> FINISHED"
    assert [text for text in texts(shown + rest) if "RESTARTING" in text] == ["--> RESTARTING"]
    assert spoken(workspace.run("logs", run.id).out) == ["attempt 0", "attempt 1"]
    assert spoken(workspace.run("logs", "--attempt", "0", run.id).out) == ["attempt 0"]
    assert spoken(workspace.run("logs", "--attempt", "1", run.id).out) == ["attempt 1"]


def test_logs_can_be_followed_before_the_run_has_a_supervisor(workspace: Workspace) -> None:
    # A run with a number and a plan, and no supervisor yet.
    old = workspace.train("run: echo first; exit 0")
    old.wait_for(Phase.FINISHED)
    young = Run(workspace, "2")
    young.path.mkdir(mode=0o700)
    for name in ("plan.json", "launch.json", "drumline.yml"):
        (young.path / name).write_bytes((old.path / name).read_bytes())
    follower = workspace.command("logs", "-f", "2")
    assert workspace.run("supervise", "2").code == 0
    out, err = follower.communicate(timeout=PATIENCE_SECONDS)
    assert (follower.returncode, err) == (0, "")
    assert spoken(out) == ["first"]


def test_following_the_logs_of_a_run_without_a_supervisor_reports_its_absence(workspace: Workspace) -> None:
    run = workspace.train("run: echo begun; exec sleep 1000")
    wait_until(lambda: run.log("worker.0"))
    follower = workspace.command("logs", "-f", run.id)
    read_to(follower, "begun")
    run.kill_supervisor()
    _, err = follower.communicate(timeout=PATIENCE_SECONDS)
    assert follower.returncode == 3
    assert f"the supervisor of run {run.id} is gone" in err
    assert spoken(workspace.run("logs", run.id).out) == ["begun"]
    assert workspace.run("kill", run.id).code == 0


def test_logs_with_tail_count_the_lines_of_replicas_only(workspace: Workspace) -> None:
    run = workspace.train("run: for i in 1 2 3 4 5; do echo line $i; done; printf 'line 6'")
    run.wait_for(Phase.FINISHED)
    for number, lines in ((0, []), (1, ["line 6"]), (3, ["line 4", "line 5", "line 6"])):
        assert spoken(workspace.run("logs", "--tail", str(number), run.id).out) == lines
    last = ["line 6", "--> FINISHED", "Exit Code: 0", "--> FINISHED"]
    assert texts(workspace.run("logs", "--tail", "1", run.id).out) == last
    assert texts(workspace.run("logs", "--tail", "100", run.id).out) == texts(workspace.run("logs", run.id).out)


def test_logs_since_a_time_leave_out_older_lines(workspace: Workspace) -> None:
    run = workspace.train("run: echo old; until [ -e $HERE/go ]; do sleep 0.05; done; echo new; exit 0")
    wait_until(lambda: run.log("worker.0"))
    marks = run.trace_dir("worker.0") / "marks"
    wait_until(lambda: marks.exists() and marks.stat().st_size)
    workspace.write("go", "")
    run.wait_for(Phase.FINISHED)
    # As if everything up to the first mark had been written an hour ago.
    (at, size), *later = MARK.iter_unpack(marks.read_bytes())
    marks.write_bytes(MARK.pack(at - 3600, size) + b"".join(MARK.pack(*mark) for mark in later))
    *early, last = [json.loads(line) for line in run.folder.journal_file.read_text().splitlines()]
    moved = [{**record, "at": record["at"] - 3600} for record in early]
    run.folder.journal_file.write_text("".join(f"{json.dumps(record)}\n" for record in (*moved, last)))
    assert spoken(workspace.run("logs", "--since", "30m", run.id).out) == ["new"]
    assert spoken(workspace.run("logs", "--since", "2h", run.id).out) == ["old", "new"]
    assert workspace.run("logs", "--since", "soon", run.id).code == 2


def test_logs_of_a_part_of_a_run_can_be_selected(workspace: Workspace) -> None:
    run = workspace.train("""
        roles: {chief: {run: echo I lead}, worker: {replicas: 2, run: echo I work $DRUMLINE_INDEX}}
        success: all-workers
    """)
    run.wait_for(Phase.FINISHED)
    assert spoken(workspace.run("logs", f"{run.id}.chief").out) == ["I lead"]
    assert spoken(workspace.run("logs", f"{run.id}.master").out) == ["I lead"]
    assert spoken(workspace.run("logs", f"{run.id}.worker.1").out) == ["I work 1"]
    assert sorted(spoken(workspace.run("logs", "--role", "worker", run.id).out)) == ["I work 0", "I work 1"]
    assert workspace.run("logs", "--role", "ps", run.id).code == 4
    wrong = workspace.run("logs", f"{run.id}.worker.7")
    assert wrong.code == 4
    assert f"{run.id}.worker.1" in wrong.err
    assert workspace.run("logs", "77").code == 4


def test_lines_from_a_time_without_supervisor_are_shown_as_approximate(workspace: Workspace) -> None:
    workspace.write(
        "talk.sh",
        """
        echo seen
        until [ -e go ]; do sleep 0.05; done
        echo unseen
        until [ -e end ]; do sleep 0.05; done
        """,
    )
    run = workspace.train("run: sh talk.sh")
    marks = run.trace_dir("worker.0") / "marks"
    wait_until(lambda: marks.exists() and marks.stat().st_size)
    run.kill_supervisor()
    workspace.write("go", "")
    wait_until(lambda: b"unseen" in run.log("worker.0"))
    assert workspace.run("supervise", run.id).code == 0
    wait_until(lambda: marks.stat().st_size == 32)
    workspace.write("end", "")
    run.wait_for(Phase.FINISHED)
    lines = {line.rpartition(" ")[2]: line for line in workspace.run("logs", run.id).out.splitlines()}
    assert "[~" in lines["unseen"]
    assert "[~" not in lines["seen"]


def test_logs_with_a_damaged_file_of_times_are_shown_without_times(workspace: Workspace) -> None:
    run = workspace.train("run: echo one; echo two; exit 0")
    run.wait_for(Phase.FINISHED)
    (run.trace_dir("worker.0") / "marks").write_bytes(b"\xff" * 37)
    assert spoken(workspace.run("logs", run.id).out) == ["one", "two"]


def test_a_warning_of_a_run_is_shown_in_its_logs_before_later_events(workspace: Workspace) -> None:
    run = workspace.train("""
        run: until [ -e $HERE/go ]; do sleep 0.05; done
        roles: {worker: 1, evaluator: {run: exit 3}}
    """)
    wait_until(lambda: run.state.warnings)
    workspace.write("go", "")
    run.wait_for(Phase.FINISHED)
    said = texts(workspace.run("logs", run.id).out)
    warning = "Warning: evaluator.0 failed (exit code 3); the training continues without it"
    assert said.index(warning) < said.index("--> FINISHED")
