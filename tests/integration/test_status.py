"""`status`, `rm` and `events` of real runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drumline.runtime.lock import is_locked
from drumline.store.index import Index, use_index
from drumline.store.summary import summarise
from scaffold.terminal import Terminal
from scaffold.waiting import PATIENCE_SECONDS, wait_until
from scaffold.workspace import Answer, Run, Workspace

ENDLESS = "sh -c 'while :; do sleep 1000; done'"


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    """Yield a workspace; its runs are killed after the test."""
    place = Workspace(tmp_path / "workspace")
    place.env = {"PATH": os.environ["PATH"], "DRUMLINE_HOME": str(place.home), "TERM": "xterm", "LC_ALL": "C.UTF-8"}
    try:
        yield place
        for run in place.runs():
            if not run.state.phase.is_final:
                assert place.run("kill", "--force", run.id).code == 0
        place.leave()
    finally:
        place.clear()


def train(workspace: Workspace, spec: str, *words: str, cwd: Path | None = None) -> Answer:
    """Write the project's spec and run `drumline train`."""
    text = f"project: digits\nframework: plain\n{spec}\n"
    ((cwd or workspace.project) / "drumline.yml").write_text(text)
    return workspace.run("train", *words, cwd=cwd)


def read(workspace: Workspace, *words: str) -> Any:
    """Return the parsed JSON of `status`."""
    answer = workspace.run("status", *words, "-o", "json")
    assert (answer.code, answer.err) == (0, "")
    return json.loads(answer.out)


def is_running(workspace: Workspace) -> bool:
    """Return whether the first run is shown as running."""
    return summarise(Run(workspace, "1").folder).phase == "RUNNING"


def test_a_finished_run_is_listed_and_shown(workspace: Workspace) -> None:
    spec = f"roles: {{chief: {{run: 'true'}}, worker: {{replicas: 2, run: 'true'}}, ps: {{run: \"{ENDLESS}\"}}}}"
    assert train(workspace, spec).code == 0
    (row,) = read(workspace)
    assert (row["id"], row["state"], row["roles"]) == ("1", "FINISHED", {"chief": 1, "worker": 2, "ps": 1})
    shown = {replica["id"]: replica for replica in read(workspace, "1")["replicas"]}
    assert {name: replica["state"] for name, replica in shown.items()} == dict.fromkeys(
        ("1.chief.0", "1.worker.0", "1.worker.1", "1.ps.0"), "FINISHED"
    )
    assert (shown["1.chief.0"]["exit_code"], shown["1.chief.0"]["is_chief"]) == (0, True)
    assert shown["1.ps.0"]["reason"] == "RunOver"
    assert all(0 <= replica["duration_seconds"] <= row["duration_seconds"] for replica in shown.values())


def test_a_run_that_failed_names_the_first_failure(workspace: Workspace) -> None:
    first = "first: {run: \"sh -c 'kill -9 $$'\"}"
    spec = f'roles: {{worker: {{replicas: 2, run: "{ENDLESS}", {first}}}}}'
    assert train(workspace, spec).code == 1
    details = read(workspace, "1")
    assert (details["state"], details["reason"]) == ("FAILED", "Signalled")
    assert details["message"] == "1.worker.0: killed by signal 9 (KILL)"
    first, second = details["replicas"]
    assert (first["state"], first["signal"], first["exit_code"]) == ("FAILED", 9, None)
    assert (second["state"], second["reason"]) == ("KILLED", "PeerFailed")
    assert "1.worker.0: killed by signal 9 (KILL)" in workspace.run("status").out
    assert " 1.worker.0 exited: killed by signal 9 (KILL)\n" in workspace.run("events", "1").out


def test_the_supervisor_leaves_a_finished_run_in_the_index(workspace: Workspace) -> None:
    assert train(workspace, "run: 'true'").code == 0
    wait_until(lambda: not is_locked(Run(workspace, "1").folder.lock_file))
    assert use_index(workspace.home, Index.ids) == {"1"}
    assert (workspace.home / "index.sqlite").stat().st_mode & 0o777 == 0o600


def test_a_running_run_can_be_watched_killed_and_then_removed(workspace: Workspace) -> None:
    assert train(workspace, f'run: "{ENDLESS}"', "-d").out == "1\n"
    wait_until(lambda: is_running(workspace))
    (row,) = read(workspace)
    assert (row["state"], row["supervisor_gone"], row["finished_at"]) == ("RUNNING", False, None)
    refused = workspace.run("rm", "1")
    assert (refused.code, refused.err) == (2, "error: run 1 is not over: RUNNING\nhint: `drumline kill 1` stops it\n")

    watching = subprocess.Popen(
        [sys.executable, "-m", "drumline", "status", "1", "-w"],
        cwd=workspace.project,
        env=workspace.env,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert watching.stdout is not None
    assert watching.stdout.readline() == "Run:        1 (digits), plain on local\n"
    assert workspace.run("kill", "1").code == 0
    with watching.stdout as stream:
        out = stream.read()
    assert watching.wait(PATIENCE_SECONDS) == 0
    states = [line.split()[1] for line in out.splitlines() if line.startswith("State:")]
    assert (states[0], states[-1], states.count("KILLED")) == ("RUNNING", "KILLED", 1)

    assert "1 was asked to stop\n" in workspace.run("events", "1").out
    assert workspace.run("rm", "1") == Answer(0, "removed run 1\n", "")
    assert not Run(workspace, "1").folder.path.exists()
    assert workspace.run("status").err == "no runs yet: `drumline train` starts one\n"


def test_a_run_can_be_removed_the_moment_it_is_over(workspace: Workspace) -> None:
    for number in range(1, 4):
        assert train(workspace, "run: 'true'").code == 0
        assert workspace.run("rm", str(number)).code == 0
    assert list((workspace.home / "runs").iterdir()) == []
    assert use_index(workspace.home, Index.ids) == set()


def test_status_reports_a_killed_supervisor_and_its_replacement(workspace: Workspace) -> None:
    assert train(workspace, f'run: "{ENDLESS}"', "-d").code == 0
    wait_until(lambda: is_running(workspace))
    Run(workspace, "1").kill_supervisor()
    wait_until(lambda: not is_locked(Run(workspace, "1").folder.lock_file))
    for words in ((), ("1",)):
        assert "supervisor gone; drumline supervise 1" in workspace.run("status", *words).out
    assert workspace.run("rm", "1").code == 2
    assert workspace.run("supervise", "1").code == 0
    assert not read(workspace, "1")["supervisor_gone"]
    assert "1 has a supervisor again\n" in workspace.run("events", "1").out
    assert workspace.run("kill", "1").code == 0
    assert read(workspace)[0]["state"] == "KILLED"


def test_a_project_lists_only_its_own_runs_also_through_a_symbolic_link(workspace: Workspace, tmp_path: Path) -> None:
    other, link = tmp_path / "other", tmp_path / "link"
    other.mkdir()
    link.symlink_to(other)
    assert train(workspace, "run: 'true'").code == 0
    assert train(workspace, "run: 'true'", cwd=link).code == 0
    assert [row["id"] for row in read(workspace)] == ["1"]
    assert [row["id"] for row in json.loads(workspace.run("status", "-o", "json", cwd=other).out)] == ["2"]
    assert [row["id"] for row in read(workspace, "-a")] == ["2", "1"]


def test_status_shows_the_attempt_and_the_causes_of_restarts(workspace: Workspace) -> None:
    spec = "restart: 1\nrun: \"sh -c 'test -e again || { touch again; exit 7; }'\""
    assert train(workspace, spec).code == 0
    details = read(workspace, "1")
    assert (details["state"], details["attempt"]) == ("FINISHED", 1)
    assert [cause["message"] for cause in details["causes"]] == ["1.worker.0: exit code 7"]


def test_an_unreadable_home_is_reported_in_one_sentence_by_every_command(workspace: Workspace) -> None:
    workspace.home.mkdir()
    (workspace.home / "runs").write_text("not a folder")
    for words in (("status",), ("status", "1"), ("events", "1"), ("rm", "1")):
        answer = workspace.run(*words)
        assert (answer.code, answer.out) == (3, "")
        assert answer.err.startswith(f"error: cannot read the runs in {workspace.home}: Not a directory\n")


def test_a_terminal_gets_colour_unless_no_color_is_set_and_no_line_wider_than_it(workspace: Workspace) -> None:
    roles = "roles: {chief: {run: 'false'}, worker: {replicas: 2, run: 'true'}, ps: {run: 'true'}}"
    spec = f"name: {'n' * 40}\n{roles}"
    assert train(workspace, spec).code == 1
    bright = Terminal(workspace, "status", columns=80)
    assert bright.wait() == 0
    text = bright.shown.decode()
    bright.close()
    assert "\x1b[31mFAILED\x1b[0m" in text
    plain = Terminal(workspace, "status", columns=80, env={"NO_COLOR": "1"})
    assert plain.wait() == 0
    text = plain.shown.decode()
    plain.close()
    assert "\x1b" not in text
    assert max(len(line) for line in text.splitlines()) == 80
    assert workspace.run("status").out.replace("\n", "")[:60] == text.replace("\r\n", "")[:60]


def test_watching_on_a_terminal_draws_in_the_same_place_and_an_interrupt_ends_it(workspace: Workspace) -> None:
    assert train(workspace, f'roles: {{worker: {{replicas: 30, run: "{ENDLESS}"}}}}', "-d").code == 0
    terminal = Terminal(workspace, "status", "-w", "1", lines=20, columns=80, env={"NO_COLOR": "1"})
    terminal.wait_until(lambda: terminal.shown.count(b"more lines") > 1)
    first, second, *_ = terminal.shown.decode().split("\x1b[19A\x1b[J")
    assert first.startswith("\x1b[JRun: ")
    assert first.count("\n") == 19
    assert second.startswith("Run: ")
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.wait() == 130
    terminal.close()
    assert read(workspace, "1")["state"] in ("STARTING", "RUNNING")
