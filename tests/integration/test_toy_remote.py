"""A remote supervisor: on the toy's server, with its own drumline folder, and all commands on this machine."""

from __future__ import annotations

import json
import os
import signal
import socketserver
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from drumline_toy import agent
from drumline_toy.remote import LENGTH, SOCKET

from drumline import __version__
from drumline.runtime.lock import is_locked
from drumline.runtime.unix import short_name
from drumline.store.folder import RunFolder
from drumline.supervise.remote import answer
from scaffold.toys import Project
from scaffold.waiting import wait_until

SPEC = """
project: digits
framework: plain
run: >-
  sh -c 'echo worker "$DRUMLINE_INDEX" begins; until [ -e gate ]; do sleep 0.05; done;
  echo worker "$DRUMLINE_INDEX" ends with ${#TOKEN}'
env: {TOKEN: {from: TOY_TOKEN}}
engine: {toy: {supervisor: THERE}}
roles: {worker: {replicas: 2}}
"""
TOKEN = "a secret of 24 characters"


class Pretender:
    """A server in the place of the toy's own, with changed answers."""

    def __init__(self, there: Path, change: Callable[[bytes], bytes]) -> None:
        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                run = self.rfile.readline().decode().strip().partition(" ")[2]
                (length,) = LENGTH.unpack(self.rfile.read(LENGTH.size))
                found = change(answer(RunFolder(there / "runs" / run), self.rfile.read(length)))
                with suppress(OSError):  # a follower closes the connection if the answer is too long
                    self.wfile.write(LENGTH.pack(len(found)) + found)

        with short_name(there / SOCKET) as name:
            self._server = socketserver.ThreadingUnixStreamServer(name, Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def close(self) -> None:
        """Answer nothing more."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def with_head(**fields: object) -> Callable[[bytes], bytes]:
    """Return a function that replaces these fields in the first line of an answer."""

    def change(found: bytes) -> bytes:
        head, newline, rest = found.partition(b"\n")
        return json.dumps({**json.loads(head), **fields}).encode() + newline + rest

    return change


class RemoteProject(Project):
    """A project with runs that are supervised on a server."""

    def __init__(self, folder: Path, packages: Path) -> None:
        super().__init__(folder, packages)
        self.there = folder / "there"
        self.there.mkdir(mode=0o700)
        (self.folder / "drumline.yml").write_text(SPEC.replace("THERE", str(self.there)))
        self._server: subprocess.Popen[bytes] | None = None
        self._pretender: Pretender | None = None
        self.serve()
        self.env["TOY_TOKEN"] = TOKEN

    def serve(self) -> None:
        """Start the server, and return when it answers."""
        argv = [sys.executable, "-P", "-m", "drumline_toy.server", str(self.there)]
        env = {name: value for name, value in self.env.items() if name not in ("DRUMLINE_HOME", "TOY_TOKEN")}
        self._server = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE)
        assert self._server.stdout
        assert self._server.stdout.readline() == b"ready\n"

    def pretend(self, change: Callable[[bytes], bytes]) -> None:
        """Pretend to be another supervisor: change each answer of the real one."""
        self.cut()
        (self.there / SOCKET).unlink()
        self._pretender = Pretender(self.there, change)

    def cut(self) -> None:
        """End the server: supervisors continue, and cannot be reached."""
        if self._server:
            assert self._server.stdout
            self._server.kill()
            self._server.wait()
            self._server.stdout.close()
        self._server = None
        if self._pretender:
            self._pretender.close()
        self._pretender = None

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command without waiting for its end."""
        argv = [sys.executable, "-m", "drumline", *words]
        pipe = subprocess.PIPE
        return subprocess.Popen(argv, cwd=self.folder, env=self.env, stdout=pipe, stderr=pipe, text=True)

    def remote(self, run: str) -> Path:
        """Return the folder of a run on the server."""
        return self.there / "runs" / run

    def kill_supervisor(self, run: str) -> None:
        """Kill the supervisor on the server."""
        lock = self.remote(run) / "supervisor.lock"
        os.kill(int(lock.read_text()), signal.SIGKILL)
        wait_until(lambda: not is_locked(lock))

    def clear(self) -> None:
        """End all that was started."""
        self.open_gate()
        followers = [*self.home.glob("runs/*/supervisor.lock")]
        for lock in [*followers, *self.there.glob("runs/*/supervisor.lock")]:
            if is_locked(lock) and (pid := lock.read_text().strip()):
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGTERM)
        locks = [*followers, *self.there.glob("runs/*/supervisor.lock"), *self.there.glob(f"runs/*/toy/{agent.LOCK}")]
        wait_until(lambda: not any(map(is_locked, locks)))
        self.cut()
        assert agent.marked(str(self.there), within=True) == []


@pytest.fixture
def project(tmp_path: Path, packages: Path) -> Iterator[RemoteProject]:
    made = RemoteProject(tmp_path, packages)
    yield made
    made.clear()


def test_train_shows_a_run_to_its_end_and_all_its_files_are_on_this_machine_afterwards(project: RemoteProject) -> None:
    project.open_gate()
    answer = project.run("train")
    assert answer.code == 0, answer
    for line in ("worker 0 begins", "worker 1 begins", f"worker 0 ends with {len(TOKEN)}"):
        assert answer.out.count(line) == 1, answer
    assert (project.remote("1") / "events.jsonl").read_bytes() == (project.home / "runs/1/events.jsonl").read_bytes()
    project.cut()  # commands about an ended run need no server
    logs = project.run("logs", "1")
    assert (logs.err, logs.out.count(f"ends with {len(TOKEN)}")) == ("", 2), logs
    assert "1.worker.0 exited: exit code 0" in project.run("events", "1").out
    assert project.phase("1") == "FINISHED"
    assert str(project.there) in project.run("status", "1").out
    for folder in (project.home, project.there):
        found = [path for path in folder.rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()]
        assert found == [], "a secret is on no disk"


def test_the_supervisor_runs_on_the_server_and_a_follower_on_this_machine(project: RemoteProject) -> None:
    run = project.begin()
    there, here = project.remote(run) / "supervisor.lock", project.home / "runs" / run / "supervisor.lock"
    assert is_locked(there)
    assert is_locked(here)
    assert there.read_text() != here.read_text()
    assert not (project.home / "runs" / run / "toy").exists(), "the replicas are ordered there"
    project.open_gate()
    assert project.run("wait", run).code == 0


def test_logs_follow_and_wait_end_with_the_run(project: RemoteProject) -> None:
    run = project.begin()
    logs, wait = project.start("logs", "-f", run), project.start("wait", run)
    assert logs.stdout
    while "worker 1 begins" not in (line := logs.stdout.readline()):
        assert line
    project.open_gate()
    out, _ = logs.communicate()
    wait.communicate()
    assert (logs.returncode, wait.returncode) == (0, 0)
    assert out.count("ends with") == 2
    assert out.endswith("--> FINISHED\n"), "the last line of the run is the last that is shown"


def test_kill_ends_all_processes_on_the_server(project: RemoteProject) -> None:
    run = project.begin()
    answer = project.run("kill", run)
    assert (answer.code, answer.out) == (0, f"killed run {run}; none of its processes is left\n"), answer
    assert agent.marked(str(project.there), within=True) == []
    assert project.phase(run) == "KILLED"
    project.open_gate()
    assert project.run("resume", run).code == 0
    assert project.phase(run) == "FINISHED"
    assert project.run("rm", run).code == 0
    assert not project.remote(run).exists()


def test_an_interrupted_train_leaves_the_run_alone_or_ends_it(project: RemoteProject) -> None:
    for words, phase in ((("train",), "RUNNING"), (("train", "--kill-on-interrupt"), "KILLED")):
        train = project.start(*words)
        assert train.stdout
        while "worker 1 begins" not in train.stdout.readline():
            assert train.poll() is None
        train.send_signal(signal.SIGINT)
        train.communicate()
        assert train.returncode == 130
        assert project.phase("1" if phase == "RUNNING" else "2") == phase


def test_a_failed_run_shows_its_cause(project: RemoteProject) -> None:
    spec = project.folder / "drumline.yml"
    text = spec.read_text()
    spec.write_text(
        text.replace(text[text.index("run: >-") : text.index("env:")], "run: sh -c 'echo lost it; exit 3'\n")
    )
    answer = project.run("train")
    assert answer.code == 1, answer
    assert "exit code 3" in answer.out + answer.err
    status = json.loads(project.run("status", "1", "-o", "json").out)
    assert (status["state"], "exit code 3" in status["message"]) == ("FAILED", True), status


def test_an_unreachable_supervisor_is_not_the_end_of_the_run(project: RemoteProject) -> None:
    run = project.begin()
    logs = project.start("logs", "-f", run)
    assert logs.stdout
    assert logs.stderr
    while "worker 1 begins" not in logs.stdout.readline():
        assert logs.poll() is None
    project.cut()
    assert "cannot be reached; the run itself may continue" in logs.stderr.readline()
    answer = project.run("status", run)
    assert "RUNNING: as of the last contact; supervisor not reachable" in answer.out, answer
    row = json.loads(project.run("status", "-o", "json").out)[0]
    assert (row["state"], row["supervisor_gone"]) == ("RUNNING", False)
    assert "does not answer" in row["supervisor_unreachable"]
    answer = project.run("monitor", run, "--once")
    assert (answer.code, "supervisor not reachable" in answer.out + answer.err) == (0, True), answer
    answer = project.run("kill", run)
    assert (answer.code, f"run {run} was not asked to stop" in answer.err) == (3, True), answer
    answer = project.run("events", run)
    assert (answer.code, "as of the last contact" in answer.err, "was accepted" in answer.out) == (0, True, True)
    project.serve()
    assert "answers again" in logs.stderr.readline()
    project.open_gate()
    out, _ = logs.communicate()
    assert (logs.returncode, out.count("ends with")) == (0, 2)
    assert project.phase(run) == "FINISHED"


def test_a_run_without_a_follower_is_followed_by_the_next_command(project: RemoteProject) -> None:
    run = project.begin()
    lock = project.home / "runs" / run / "supervisor.lock"
    os.kill(int(lock.read_text()), signal.SIGKILL)  # as a reboot of this machine would
    project.open_gate()
    wait_until(lambda: not is_locked(project.remote(run) / "supervisor.lock"))
    assert "FINISHED" in project.run("status").out
    assert project.run("logs", run).out.count("ends with") == 2


def test_a_supervisor_that_was_killed_is_gone_until_it_is_started_again(project: RemoteProject) -> None:
    run = project.begin()
    project.kill_supervisor(run)
    wait_until(lambda: not is_locked(project.home / "runs" / run / "supervisor.lock"))
    answer = project.run("wait", run)
    assert (answer.code, f"the supervisor of run {run} is gone" in answer.err) == (3, True), answer
    assert f"supervisor gone; drumline supervise {run}" in project.run("status").out
    assert project.run("supervise", run).out == f"started a new supervisor for run {run}\n"
    project.open_gate()
    assert project.run("wait", run).code == 0
    assert project.run("logs", run).out.count("worker 0 begins") == 1


def test_kill_starts_a_supervisor_on_the_server_if_none_is_left(project: RemoteProject) -> None:
    run = project.begin()
    project.kill_supervisor(run)
    assert project.run("kill", run).code == 0
    assert agent.marked(str(project.there), within=True) == []


def test_train_reports_a_server_that_does_not_answer_and_creates_no_run(project: RemoteProject) -> None:
    project.cut()
    answer = project.run("train")
    assert (answer.code, "does not answer" in answer.err) == (3, True), answer
    assert list(project.home.glob("runs/*")) == []


def test_a_newer_supervisor_that_supports_this_protocol_can_be_followed(project: RemoteProject) -> None:
    run = project.begin()
    project.pretend(with_head(protocol=9, drumline="9.9", news=[{"of": "later versions"}]))
    answer = project.run("events", run)
    assert (answer.code, answer.err, "was accepted" in answer.out) == (0, "", True), answer
    assert project.run("kill", run).code == 0


NEWER, OLDER = "install drumline 9.9 or newer on this side", f"install drumline {__version__} there"


@pytest.mark.parametrize(
    ("versions", "needs", "hint"),
    [
        ({"protocol": 9, "oldest": 7, "drumline": "9.9"}, "which needs version 7 of the protocol or newer", NEWER),
        ({"journal": 8, "drumline": "9.9"}, "with version 8", NEWER),
        ({"protocol": 0, "oldest": 0, "drumline": "0.1"}, "which has version 0 of the protocol", OLDER),
    ],
    ids=["newer", "journal", "older"],
)
def test_a_supervisor_of_another_protocol_is_reported_with_the_needed_version(
    project: RemoteProject, versions: dict[str, object], needs: str, hint: str
) -> None:
    run = project.begin()
    project.pretend(with_head(**versions))
    for words in (("events", run), ("kill", run)):
        answer = project.run(*words)
        assert (answer.code, needs in answer.err, hint in answer.err) == (3, True, True), answer
    assert needs in project.run("status").out
    assert project.phase(run) == "RUNNING"
    project.cut()
    project.serve()
    assert project.run("kill", run).code == 0


def test_malformed_answers_of_a_server_change_nothing_on_this_machine(project: RemoteProject) -> None:
    run = project.begin()
    for sent in (b"", b"\x1b[31mred\n", b"{" * 100_000, b"x" * (1 << 24), b'{"protocol": 1}\n', b"[]\n" + b"y" * 100):
        project.pretend(lambda _, sent=sent: sent)  # type: ignore[misc]
        answer = project.run("events", run)
        assert (answer.code, "as of the last contact" in answer.err) == (0, True), (sent[:20], answer)
        assert "\x1b" not in answer.err
        assert project.phase(run) == "RUNNING"
    project.pretend(with_head(error="\x1b]0;title\x07 no"))
    assert "\x1b" not in project.run("status", run).out + project.run("status").out + project.run("events", run).err
    project.cut()
    project.serve()
    project.open_gate()
    assert project.run("wait", run).code == 0
