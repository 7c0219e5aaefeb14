"""Missing peers are reported until all listen."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from drumline.runtime.peers import find_missing, report_missing_peers
from scaffold.waiting import wait_until


def test_a_replica_that_does_not_listen_is_missing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as there, socket.socket() as claimed:
        claimed.bind(("127.0.0.1", 0))  # as an engine holds a port until its replica listens
        port = claimed.getsockname()[1]
        known = {"worker.0": f"127.0.0.1:{there.getsockname()[1]}", "worker.1": f"127.0.0.1:{port}"}
        assert find_missing(known) == [f"worker.1 at 127.0.0.1:{port}"]
        claimed.listen()
        assert find_missing(known) == []
    unknown = {"ps.0": "no..host:1", "ps.1": "[::1]:1", "ps.2": "127.0.0.1:99999"}
    assert find_missing(unknown) == ["ps.0 at no..host:1", "ps.1 at [::1]:1", "ps.2 at 127.0.0.1:99999"]


def test_of_many_peers_only_some_are_checked() -> None:
    with socket.socket() as claimed:
        claimed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{claimed.getsockname()[1]}"
        assert len(find_missing({f"worker.{number}": address for number in range(100)})) == 5


WAIT = """
import sys
from drumline.runtime.peers import report_missing_peers
with report_missing_peers({"worker.1": "127.0.0.1:1"}):
    print("waiting", flush=True)
    sys.stdin.readline()
"""


def test_the_reporting_child_ends_with_its_parent() -> None:
    read, write = os.pipe()
    argv = [sys.executable, "-c", WAIT]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=write) as waits:
        os.close(write)
        assert waits.stdout
        waits.stdout.readline()
        waits.kill()
    with os.fdopen(read, "rb") as output:
        assert output.read() == b""  # closed by all processes


IGNORES_SIGTERM = """
import signal, sys
from drumline.runtime.peers import report_missing_peers
signal.signal(signal.SIGTERM, signal.SIG_IGN)
with report_missing_peers({"worker.1": "127.0.0.1:1"}) as reporter:
    print(reporter, flush=True)
    sys.stdin.readline()
"""


def test_a_waiting_process_that_ignores_sigterm_is_killed() -> None:
    argv = [sys.executable, "-c", IGNORES_SIGTERM]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as waits:
        assert waits.stdout
        reporter = int(waits.stdout.readline())
        wait_until(lambda: catches_sigterm(reporter))
        os.killpg(waits.pid, signal.SIGTERM)
    assert waits.returncode == -signal.SIGKILL


def catches_sigterm(pid: int) -> bool:
    caught = Path(f"/proc/{pid}/status").read_text().split("SigCgt:")[1].split()[0]
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


def test_a_wait_that_ends_at_once_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with report_missing_peers({"worker.1": "127.0.0.1:1"}):
        pass
    assert capfd.readouterr() == ("", "")
