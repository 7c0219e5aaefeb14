"""The fork server: forks keepers that outlive it, is replaced when it is killed, and ends with its supervisor."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from drumline.engine.local.forker import ForkerLost, ForkServer
from drumline.engine.local.trace import open_trace, read_trace
from drumline.runtime import forkserver
from drumline.runtime.lock import is_locked
from drumline.runtime.order import Descriptors, Order
from scaffold.loops import SteppedLoop
from scaffold.processes import is_alive, kill_and_wait
from scaffold.waiting import wait_until


class Bench:
    """A folder with a fork server that is used by this process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.loop = SteppedLoop()
        self.server = ForkServer(self.loop)
        self.names: list[str] = []

    def fork(self, name: str, *argv: str, **more: str) -> int:
        """Have a keeper forked for this command; return its pid."""
        trace = open_trace(self.folder / name)
        assert trace is not None
        self.names.append(name)
        log = os.open(self.folder / f"{name}.log", os.O_WRONLY | os.O_CREAT)
        reader, news = os.pipe()
        try:
            order = Order(name, argv, {"PATH": os.environ["PATH"], **more}, str(self.folder), boot="b")
            return self.loop.wait(self.server.fork(order, Descriptors(trace, log, news)))
        finally:
            for descriptor in (trace, log, reader, news):
                os.close(descriptor)

    def wait_over(self, name: str) -> int | None:
        """Return the exit code of a replica when nothing of it is left."""
        wait_until(lambda: read_trace(self.folder / name).over)
        end = read_trace(self.folder / name).exit
        return end.code if end else None

    def wait_lost(self) -> None:
        """Wait until the connection to the fork server is lost."""
        connection = self.server._connection
        assert connection

        def is_lost() -> bool:
            self.loop.turn()
            return connection.is_lost

        wait_until(is_lost)

    def clear(self) -> None:
        """Kill the keepers and replicas that a failed test has left."""
        for name in self.names:
            if is_locked(self.folder / name):
                trace = read_trace(self.folder / name)
                for pid in filter(None, (trace.pid, trace.keeper)):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)

    @property
    def pid(self) -> int:
        (pid,) = self.server.pids
        return pid


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    with closing(made.server):
        try:
            yield made
        finally:
            made.clear()


def test_a_keeper_runs_its_command_and_is_named_by_the_answer(bench: Bench) -> None:
    keeper = bench.fork("first", "sh", "-c", "echo $WORD; exit 3", WORD="said")
    assert bench.wait_over("first") == 3
    assert read_trace(bench.folder / "first").keeper == keeper
    assert (bench.folder / "first.log").read_text() == "said\n"


def test_the_fork_server_stays_one_process_with_one_thread_and_no_open_order(bench: Bench) -> None:
    bench.fork("first", "true")
    pid = bench.pid
    bench.fork("second", "true", SECRET="a secret")
    assert bench.pid == pid
    assert len(list(Path(f"/proc/{pid}/task").iterdir())) == 1
    held = {str(each.readlink()) for each in Path(f"/proc/{pid}/fd").iterdir() if each.is_symlink()}
    assert not any(name.startswith(str(bench.folder)) for name in held)
    for name in ("first", "second"):
        assert bench.wait_over(name) == 0


def test_the_fork_server_has_no_variables_that_may_be_secrets(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", "a secret")
    bench.fork("first", "true")
    assert b"a secret" not in Path(f"/proc/{bench.pid}/environ").read_bytes()
    assert bench.wait_over("first") == 0


def test_an_order_may_be_longer_than_a_file_may_be(bench: Bench) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, limits[1]))
    try:
        bench.fork(
            "first", "sh", "-c", "exit $((${#WORDS_7} / 1000))", **{f"WORDS_{i}": "x" * 100_000 for i in range(8)}
        )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert bench.wait_over("first") == 100


def test_the_fork_server_and_its_keepers_have_different_names(bench: Bench) -> None:
    keeper = bench.fork("first", "sh", "-c", "until [ -e go ]; do sleep 0.05; done")
    wait_until(lambda: read_trace(bench.folder / "first").pid)
    names = [Path(f"/proc/{pid}/comm").read_text().strip() for pid in (bench.pid, keeper)]
    assert names == [forkserver.NAME, forkserver.KEEPER_NAME]
    (bench.folder / "go").touch()
    assert bench.wait_over("first") == 0


def test_keepers_outlive_a_killed_fork_server_and_the_next_order_starts_another(bench: Bench) -> None:
    keeper = bench.fork("first", "sh", "-c", "until [ -e go ]; do sleep 0.05; done")
    before = bench.pid
    kill_and_wait(before)
    bench.wait_lost()  # a keeper that was just forked has the connection for a moment longer
    bench.fork("second", "true")
    assert bench.pid != before
    assert bench.wait_over("second") == 0
    assert is_alive(keeper)
    (bench.folder / "go").touch()
    assert bench.wait_over("first") == 0


def test_an_order_to_a_fork_server_that_is_killed_meanwhile_is_lost_and_keeps_no_trace_locked(bench: Bench) -> None:
    bench.fork("first", "true")
    os.kill(bench.pid, signal.SIGSTOP)
    bench.loop.call_later(0, os.kill, bench.pid, signal.SIGKILL)
    with pytest.raises(ForkerLost):
        bench.fork("second", "true")
    wait_until(lambda: not is_locked(bench.folder / "second"))
    assert read_trace(bench.folder / "second").keeper is None


def test_the_fork_server_ends_when_its_supervisor_closes_the_connection(bench: Bench) -> None:
    keeper = bench.fork("first", "sleep", "1000")
    pid = bench.pid
    assert bench.server._connection
    bench.server._connection.close()
    wait_until(lambda: not is_alive(pid))
    assert is_alive(keeper)
    wait_until(lambda: read_trace(bench.folder / "first").pid)
    os.kill(read_trace(bench.folder / "first").pid or 0, signal.SIGKILL)
    bench.wait_over("first")
