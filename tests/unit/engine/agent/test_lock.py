"""An agent kills the agent that holds its lock, and no other process, whatever a lock in a shared folder contains."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from drumline.engine.agent import lock
from drumline.runtime.keeper import boot_id, start_ticks
from drumline.runtime.lock import is_locked, take_lock

HOLD = """
import sys
from pathlib import Path
from drumline.engine.agent.lock import take_over
take_over(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def innocent() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "_LOCK_SECONDS", 0.2)


def identity(pid: int) -> list[object]:
    return [boot_id(), str(Path(f"/proc/{pid}/ns/pid").readlink()), pid, start_ticks(pid)]


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("other", ["pid alone", "boot", "namespace", "ticks", "nonsense"])
def test_a_process_of_another_machine_with_the_same_number_is_not_ended(
    tmp_path: Path, innocent: subprocess.Popen[bytes], other: str
) -> None:
    path = tmp_path / "agent.lock"
    held = take_lock(path)
    assert held is not None
    boot, space, pid, ticks = identity(innocent.pid)
    said: object = {
        "pid alone": innocent.pid,
        "boot": ["another boot", space, pid, ticks],
        "namespace": [boot, "pid:[1]", pid, ticks],
        "ticks": [boot, space, pid, 1],
        "nonsense": [[], {}, "1", None],
    }[other]
    path.write_text(json.dumps(said))
    with pytest.raises(OSError, match="stays locked"):
        lock.take_over(path)
    assert innocent.poll() is None
    os.close(held)


def test_the_agent_that_holds_the_lock_is_ended(tmp_path: Path) -> None:
    path = tmp_path / "agent.lock"
    before = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert before.stdout
    assert before.stdout.readline() == "held\n"
    assert is_locked(path)
    held = lock.take_over(path)
    before.communicate()
    assert before.returncode == -9
    assert json.loads(path.read_text()) == identity(os.getpid())
    os.close(held)
