"""`status`, `rm` and `events` of real runs, as they are typed."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from drumline.engine.local.trace import read_trace
from drumline.plan.types import ReplicaId
from drumline.run.traces import TRACE, trace_dir
from drumline.runtime.keeper import MOST_RETURNS, SUPERVISOR_RETURNS
from drumline.runtime.lock import is_locked
from drumline.store.folder import RunFolder
from drumline.store.index import Index, use_index
from drumline.store.summary import summarise

PATIENCE_SECONDS = 600.0
ENDLESS = "sh -c 'while :; do sleep 1000; done'"


class Answer(NamedTuple):
    """What a command said."""

    code: int
    out: str
    err: str


class Desk:
    """A home and a project; whatever still runs there is ended at the end."""

    def __init__(self, path: Path) -> None:
        self.home = path / "home"
        self.project = path / "project"
        self.project.mkdir(parents=True)

    def type(self, *words: str, cwd: Path | None = None) -> Answer:
        """Run a command to its end."""
        done = subprocess.run(
            [sys.executable, "-m", "drumline", *words],
            cwd=cwd or self.project,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        return Answer(done.returncode, done.stdout, done.stderr)

    def train(self, spec: str, *words: str, cwd: Path | None = None) -> Answer:
        """Run a spec."""
        ((cwd or self.project) / "drumline.yml").write_text(f"project: digits\nframework: plain\n{spec}\n")
        return self.type("train", *words, cwd=cwd)

    def read(self, *words: str) -> Any:
        """What `status` says, as data."""
        answer = self.type("status", *words, "-o", "json")
        assert (answer.code, answer.err) == (0, "")
        return json.loads(answer.out)

    def folder(self, run: int) -> RunFolder:
        return RunFolder(self.home / "runs" / str(run))

    def is_running(self) -> bool:
        return summarise(self.folder(1)).phase == "RUNNING"

    @property
    def env(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "DRUMLINE_HOME": str(self.home), "TERM": "xterm", "LC_ALL": "C.UTF-8"}

    def clear(self) -> None:
        with suppress(OSError):
            for path in (self.home / "runs").iterdir():
                if not summarise(RunFolder(path)).is_final:
                    self.type("kill", "--force", path.name)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """A place to work at."""
    place = Desk(tmp_path)
    try:
        yield place
    finally:
        place.clear()


def wait_until(look: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not look():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_run_that_went_well_is_listed_and_shown(desk: Desk) -> None:
    spec = f"roles: {{chief: {{run: 'true'}}, worker: {{replicas: 2, run: 'true'}}, ps: {{run: \"{ENDLESS}\"}}}}"
    assert desk.train(spec).code == 0
    (row,) = desk.read()
    assert (row["id"], row["state"], row["roles"]) == ("1", "FINISHED", {"chief": 1, "worker": 2, "ps": 1})
    shown = {replica["id"]: replica for replica in desk.read("1")["replicas"]}
    assert {name: replica["state"] for name, replica in shown.items()} == dict.fromkeys(
        ("1.chief.0", "1.worker.0", "1.worker.1", "1.ps.0"), "FINISHED"
    )
    assert (shown["1.chief.0"]["exit_code"], shown["1.chief.0"]["is_chief"]) == (0, True)
    assert shown["1.ps.0"]["reason"] == "RunOver"
    assert all(0 <= replica["duration_seconds"] <= row["duration_seconds"] for replica in shown.values())


def test_a_run_that_failed_says_who_fell_first_and_how(desk: Desk) -> None:
    first = "first: {run: \"sh -c 'kill -9 $$'\"}"
    spec = f'roles: {{worker: {{replicas: 2, run: "{ENDLESS}", {first}}}}}'
    assert desk.train(spec).code == 1
    details = desk.read("1")
    assert (details["state"], details["reason"]) == ("FAILED", "Signalled")
    assert details["message"] == "1.worker.0: killed by signal 9 (KILL)"
    first, second = details["replicas"]
    assert (first["state"], first["signal"], first["exit_code"]) == ("FAILED", 9, None)
    assert (second["state"], second["reason"]) == ("KILLED", "PeerFailed")
    assert "1.worker.0: killed by signal 9 (KILL)" in desk.type("status").out
    assert " 1.worker.0 exited: killed by signal 9 (KILL)\n" in desk.type("events", "1").out


def test_the_supervisor_leaves_a_finished_run_in_the_index(desk: Desk) -> None:
    assert desk.train("run: 'true'").code == 0
    wait_until(lambda: not is_locked(desk.folder(1).lock_file))
    assert use_index(desk.home, Index.ids) == {"1"}
    assert (desk.home / "index.sqlite").stat().st_mode & 0o777 == 0o600


def test_a_run_that_goes_on_can_be_watched_killed_and_removed(desk: Desk) -> None:
    assert desk.train(f'run: "{ENDLESS}"', "-d").out == "1\n"
    wait_until(desk.is_running)
    (row,) = desk.read()
    assert (row["state"], row["supervisor_gone"], row["finished_at"]) == ("RUNNING", False, None)
    refused = desk.type("rm", "1")
    assert (refused.code, refused.err) == (2, "error: run 1 is not over: RUNNING\nhint: `drumline kill 1` ends it\n")

    watching = subprocess.Popen(
        [sys.executable, "-m", "drumline", "status", "1", "-w"],
        cwd=desk.project,
        env=desk.env,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert watching.stdout is not None
    assert watching.stdout.readline() == "Run:        1 (digits), plain on local\n"
    assert desk.type("kill", "1").code == 0
    with watching.stdout as stream:
        out = stream.read()
    assert watching.wait(PATIENCE_SECONDS) == 0
    states = [line.split()[1] for line in out.splitlines() if line.startswith("State:")]
    assert (states[0], states[-1], states.count("KILLED")) == ("RUNNING", "KILLED", 1)

    assert "1 was asked to stop\n" in desk.type("events", "1").out
    assert desk.type("rm", "1") == Answer(0, "removed run 1\n", "")
    assert not desk.folder(1).path.exists()
    assert desk.type("status").err == "no runs yet: `drumline train` starts one\n"


def test_a_run_can_be_removed_the_moment_it_is_over(desk: Desk) -> None:
    for number in range(1, 4):
        assert desk.train("run: 'true'").code == 0
        assert desk.type("rm", str(number)).code == 0
    assert list((desk.home / "runs").iterdir()) == []
    assert use_index(desk.home, Index.ids) == set()


def test_a_killed_supervisor_is_missed_and_a_new_one_is_seen(desk: Desk) -> None:
    assert desk.train(f'run: "{ENDLESS}"', "-d").code == 0
    wait_until(desk.is_running)
    (desk.folder(1).path / SUPERVISOR_RETURNS).write_text(str(MOST_RETURNS))  # none is left
    os.kill(supervisor_of(desk.folder(1)), signal.SIGKILL)
    wait_until(lambda: not is_locked(desk.folder(1).lock_file))
    for words in ((), ("1",)):
        assert "supervisor gone; drumline supervise 1" in desk.type("status", *words).out
    assert desk.type("rm", "1").code == 2
    assert desk.type("supervise", "1").code == 0
    assert not desk.read("1")["supervisor_gone"]
    assert "1 has a supervisor again\n" in desk.type("events", "1").out
    assert desk.type("kill", "1").code == 0
    assert desk.read()[0]["state"] == "KILLED"


def supervisor_of(folder: RunFolder) -> int:
    """The process that forked the keeper of worker 0."""
    keeper = read_trace(folder.path / trace_dir(ReplicaId("worker", 0), 0) / TRACE).keeper
    return int(Path(f"/proc/{keeper}/stat").read_text().rpartition(")")[2].split()[1])


def test_two_projects_see_their_own_runs_through_links_too(desk: Desk, tmp_path: Path) -> None:
    other, link = tmp_path / "other", tmp_path / "link"
    other.mkdir()
    link.symlink_to(other)
    assert desk.train("run: 'true'").code == 0
    assert desk.train("run: 'true'", cwd=link).code == 0
    assert [row["id"] for row in desk.read()] == ["1"]
    assert [row["id"] for row in json.loads(desk.type("status", "-o", "json", cwd=other).out)] == ["2"]
    assert [row["id"] for row in desk.read("-a")] == ["2", "1"]


def test_restarts_are_told(desk: Desk) -> None:
    spec = "restart: 1\nrun: \"sh -c 'test -e again || { touch again; exit 7; }'\""
    assert desk.train(spec).code == 0
    details = desk.read("1")
    assert (details["state"], details["attempt"]) == ("FINISHED", 1)
    assert [cause["message"] for cause in details["causes"]] == ["1.worker.0: exit code 7"]


def test_a_home_that_may_not_be_read_is_a_sentence_everywhere(desk: Desk) -> None:
    desk.home.mkdir()
    (desk.home / "runs").write_text("not a folder")
    for words in (("status",), ("status", "1"), ("events", "1"), ("rm", "1")):
        answer = desk.type(*words)
        assert (answer.code, answer.out) == (3, "")
        assert answer.err.startswith(f"error: cannot read the runs in {desk.home}: Not a directory\n")


class Terminal:
    """A command on a terminal of eighty columns."""

    def __init__(self, desk: Desk, *words: str, lines: int = 24, env: dict[str, str] | None = None) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, 80, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "drumline", *words],
            cwd=desk.project,
            env={**desk.env, **(env or {})},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)

    def read_until(self, text: str | None) -> str:
        """Everything up to these words, or to the end."""
        seen = b""
        while text is None or text.encode() not in seen:
            try:
                data = os.read(self._ours, 65536)
            except OSError:  # the other side is closed
                break
            if not data:
                break
            seen += data
        return seen.decode()

    def end(self) -> int:
        os.close(self._ours)
        return self.process.wait(PATIENCE_SECONDS)


def test_a_terminal_gets_colour_and_no_line_too_long_unless_it_wants_none(desk: Desk) -> None:
    roles = "roles: {chief: {run: 'false'}, worker: {replicas: 2, run: 'true'}, ps: {run: 'true'}}"
    spec = f"name: {'n' * 40}\n{roles}"
    assert desk.train(spec).code == 1
    bright = Terminal(desk, "status")
    text = bright.read_until(None)
    assert bright.end() == 0
    assert "\x1b[31mFAILED\x1b[0m" in text
    plain = Terminal(desk, "status", env={"NO_COLOR": "1"})
    text = plain.read_until(None)
    assert plain.end() == 0
    assert "\x1b" not in text
    assert max(len(line) for line in text.splitlines()) == 80
    assert desk.type("status").out.replace("\n", "")[:60] == text.replace("\r\n", "")[:60]


def test_watching_on_a_terminal_draws_in_the_same_place_and_an_interrupt_ends_it(desk: Desk) -> None:
    assert desk.train(f'roles: {{worker: {{replicas: 30, run: "{ENDLESS}"}}}}', "-d").code == 0
    terminal = Terminal(desk, "status", "-w", "1", lines=20, env={"NO_COLOR": "1"})
    text = terminal.read_until("more lines\r\n\x1b[")
    text += terminal.read_until("more lines")
    first, second, *_ = text.split("\x1b[19A\x1b[J")
    assert first.startswith("\x1b[JRun: ")
    assert first.count("\n") == 19
    assert second.startswith("Run: ")
    terminal.process.send_signal(signal.SIGINT)
    terminal.read_until(None)
    assert terminal.end() == 130
    assert desk.read("1")["state"] in ("STARTING", "RUNNING")
