"""Stores of older versions: the output for them does not change."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from drumline.cli import run as drumline
from stores.shown import ENV, STORES, Call, runs_of, show_list, show_run, unpack

VERSIONS = sorted(path.name for path in STORES.iterdir() if (path / "store.tar.gz").exists())
# Texts that version 1 did not record, and that are worded differently now: patterns of its output, and the new text.
REWORDED = {
    r"the training goes on without it": "the training continues without it",
    r"gone with them: `engine.kubernetes.output` would keep it": (
        "deleted with them: `engine.kubernetes.output` keeps it"
    ),
    r"start again from the checkpoint (\(restart 1 of 3\)), since what ps.0 held is lost": (
        r"restart from the checkpoint \1, since the variables on ps.0 are lost"
    ),
    r"not started again, since worker.1 fell before its first step; (`restart: \{early: 3\}`) would": (
        r"no restart, since worker.1 failed before its first step; \1 allows it"
    ),
    r"(took step .*), says (.*)": r"\1, as \2 reports",
    r"First to fall:": "First replica to fail:",
    r"fails for good:": "fails:",
    r"\w+ can tell when the lost steps were regained": "the time of the lost steps is not known",
    r"has to know: no output volume": "warning: no output volume",
    r"has its project there:": "has its project where it runs:",
    r"was asked to go": "was asked to exit",
    r"has its stacks saved:": "saved its stack traces:",
}
SHOWN = [(version, path.stem) for version in VERSIONS for path in sorted((STORES / version / "shown").glob("*.txt"))]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home into which a test unpacks a store."""
    for name, value in {**ENV, "DRUMLINE_HOME": str(tmp_path / "home")}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str]) -> Call:
    """Return a function that runs a command in this process."""

    def call(words: list[str]) -> tuple[int, str]:
        code = drumline(words)
        said = capfd.readouterr()
        return code, said.out + said.err

    return call


@pytest.mark.parametrize(("version", "name"), SHOWN)
def test_the_output_for_a_store_of_an_older_version_is_unchanged(
    version: str, name: str, home: Path, call: Call
) -> None:
    unpack(version, home)
    shown = show_list(call, home) if name == "list" else show_run(call, home, name)
    expected = (STORES / version / "shown" / f"{name}.txt").read_text()
    for before, now in REWORDED.items():
        expected = re.sub(before, now, expected)
    assert shown == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_every_run_of_a_store_is_compared(version: str, home: Path) -> None:
    unpack(version, home)
    assert sorted([*runs_of(home), "list"]) == sorted(name for each, name in SHOWN if each == version)


OLDER_SUPERVISOR = """
import fcntl, json, os, socket, sys
folder = sys.argv[1]
lock = open(f"{folder}/supervisor.lock", "r+")
fcntl.flock(lock, fcntl.LOCK_EX)
listener = socket.socket(socket.AF_UNIX)
os.chdir(folder)
listener.bind("control")
listener.listen()
print("listens", flush=True)
connections = []
while True:
    connection, _ = listener.accept()
    connections.append(connection)
    request = json.loads(connection.makefile().readline())
    connection.sendall(json.dumps({"ok": True}).encode() + b"\\n")
    if request["do"] == "stop":
        break
lines = open("events.jsonl").read().splitlines()
last = {name: json.loads(lines[-1])[name] for name in ("v", "at", "up", "boot")}
exited = {"replica": "worker.0", "attempt": 0, "incarnation": 0, "exit": {"signal": 15}, "at_seconds": last["up"] + 1}
with open("events.jsonl", "a") as journal:
    for event in ({"event": "StopRequested", "at_seconds": last["up"]}, {"event": "ReplicaExited", **exited}):
        journal.write(json.dumps({**last, **event}) + "\\n")
os.unlink("control")
"""


def test_a_run_of_an_older_supervisor_can_be_killed(home: Path, call: Call) -> None:
    unpack("1", home)
    folder = home / "runs" / "18"
    command = [sys.executable, "-c", OLDER_SUPERVISOR, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as supervisor:
        try:
            assert supervisor.stdout
            assert supervisor.stdout.readline() == "listens\n"
            code, said = call(["status", "18"])
            assert (code, "RUNNING" in said, "supervisor gone" in said) == (0, True, False)
            assert call(["kill", "18"]) == (0, "killed run 18; none of its processes is left\n")
            assert supervisor.wait() == 0
        finally:
            supervisor.kill()
    code, said = call(["status", "18"])
    assert (code, "KILLED" in said) == (0, True)
    assert {json.loads(line)["v"] for line in (folder / "events.jsonl").read_text().splitlines()} == {2}
