"""A keeper stops its replica when its lease has expired, and records that; a renewed lease does not expire."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from drumline.engine.local.trace import read_trace
from drumline.run.event import Exit
from drumline.run.failure import failure_class
from drumline.runtime import keeper, order
from drumline.runtime.order import Descriptors, Order
from scaffold.processes import is_alive

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")


def _keep(folder: Path, script: str, lease_seconds: float) -> int:
    """Fork a keeper; return its pid."""
    trace, log, news = (os.open(folder / name, os.O_RDWR | os.O_CREAT) for name in ("keeper", "log", "news"))
    lease = folder / "lease"
    lease.touch()
    pid = os.fork()
    if pid == 0:
        ordered = Order(
            "worker.0 0 0", ["sh", "-c", script], dict(os.environ), "/", lease=str(lease), lease_seconds=lease_seconds
        )
        keeper.keep(ordered, Descriptors(trace, log, news))
    for descriptor in (trace, log, news):
        os.close(descriptor)
    return pid


def _renew_until(folder: Path, *names: str) -> None:
    """Renew the lease until these files exist."""
    while not all((folder / name).exists() for name in names):
        os.utime(folder / "lease")
        time.sleep(0.02)


def test_when_a_lease_expires_the_replica_gets_term_and_its_trace_records_the_reason(tmp_path: Path) -> None:
    script = f"trap 'echo saved; exit 0' TERM; : > {tmp_path}/ready; while :; do sleep 0.05; done"
    pid = _keep(tmp_path, script, 1.5)
    _renew_until(tmp_path, "ready")
    os.waitpid(pid, 0)
    end = read_trace(tmp_path / "keeper")
    why = "its lease was not renewed for 1.5s"
    assert end.exit == Exit(code=0, message=why, reason="LeaseOver")
    assert end.over
    assert not end.exit.ok
    assert failure_class(end.exit, "plain") == "lost"
    assert (tmp_path / "log").read_text().endswith("saved\n")


def test_a_replica_that_ignores_term_is_killed_with_all_its_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(order, "LEASE_GRACE_SECONDS", 0.1)
    child = f"{tmp_path}/child"
    script = f"trap '' TERM; setsid sleep 1000 & echo $! > {child}.new; mv {child}.new {child}; sleep 1000"
    pid = _keep(tmp_path, script, 1.5)
    _renew_until(tmp_path, "child")
    os.waitpid(pid, 0)
    end = read_trace(tmp_path / "keeper")
    assert end.exit
    assert (end.exit.signal, end.exit.reason, end.over) == (9, "LeaseOver", True)
    assert not is_alive(int((tmp_path / "child").read_text()))  # the kernel may keep its pid for a moment


def test_a_replica_with_a_renewed_lease_runs_until_its_own_end(tmp_path: Path) -> None:
    pid = _keep(tmp_path, f"until [ -e {tmp_path}/gate ]; do sleep 0.05; done; exit 3", 600.0)
    _renew_until(tmp_path, "keeper")
    assert os.waitpid(pid, os.WNOHANG) == (0, 0)
    (tmp_path / "gate").touch()
    os.waitpid(pid, 0)
    assert read_trace(tmp_path / "keeper").exit == Exit(code=3)


def test_each_touch_of_the_lease_file_renews_the_lease(tmp_path: Path) -> None:
    """The test has its own clock, so that a pause of the machine does not end a lease."""
    clock = [100.0]
    asked = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    file = tmp_path / "lease"
    file.touch()
    lease = order.Lease(str(file), 2.5, asked.pid, lambda: clock[0])
    for touch in range(4):  # together longer than the lease
        clock[0] += 2.0
        os.utime(file, ns=(touch, touch))
        lease.check()
        assert not lease.is_over
    assert asked.poll() is None
    clock[0] += 2.6
    lease.check()
    assert lease.is_over
    assert asked.wait() == -signal.SIGTERM
