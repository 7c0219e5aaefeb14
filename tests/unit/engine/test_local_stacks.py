"""The stacks of real processes, by py-spy and by Python itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from drumline.engine.local.activity import is_stopped
from drumline.engine.local.stacks import Target, find_spy, save_stacks
from drumline.run.blocking import ActivityKind, read_activity

# The other thread prints when the first one sleeps: a thread that prints it itself would still be running.
SCRIPT = """
import sys, threading, time

def rest():

    time.sleep(1000)

def other():
    while sys._current_frames()[threading.main_thread().ident].f_lineno != 6:
        time.sleep(0.001)
    print("ready", flush=True)
    time.sleep(1001)

threading.Thread(target=other, daemon=True).start()
rest()
"""
SECONDS = 60.0


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Target]:
    """Return a process that sleeps in a function of its script."""
    (tmp_path / "rests.py").write_text(textwrap.dedent(SCRIPT))
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "rests.py"],
            cwd=tmp_path,
            stdout=log,
            stderr=log,
            env={**os.environ, "PYTHONFAULTHANDLER": "1"},
            start_new_session=True,
        )
    try:
        while b"ready" not in (tmp_path / "log").read_bytes():
            assert process.poll() is None
        yield Target(tmp_path, (process.pid,))
    finally:
        process.kill()
        process.wait()


def spy() -> str:
    found = find_spy()
    assert found, "py-spy is of the tools that `make setup` installs"
    return found


def is_alive(target: Target) -> bool:
    return os.waitid(os.P_PID, target.pids[0], os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


@pytest.mark.parametrize("gently", [True, False])
def test_py_spy_shows_where_a_process_is_and_does_not_change_it(target: Target, gently: bool) -> None:
    save_stacks([target], spy(), gently=gently, seconds=SECONDS)
    assert is_alive(target)
    text = (target.folder / "stacks").read_text()
    assert "rest (" in text
    assert "other (" in text
    standing = read_activity(text)
    assert (standing.kind, standing.place) == (ActivityKind.ELSEWHERE, "rests.py:6")
    assert standing.function == "rest" if gently else standing.function in ("sleep", "rest")


def test_without_py_spy_python_prints_its_stack_and_aborts(target: Target) -> None:
    save_stacks([target], None, gently=False, seconds=SECONDS)
    assert os.waitid(os.P_PID, target.pids[0], os.WEXITED | os.WNOWAIT)
    text = (target.folder / "stacks").read_text()
    assert text.startswith("Fatal Python error: Aborted")
    assert "ready" not in text
    found = read_activity(text)
    assert (found.kind, found.function, found.place) == (ActivityKind.ELSEWHERE, "rest", "rests.py:6")


def test_without_py_spy_a_gentle_dump_disturbs_no_replica(target: Target) -> None:
    save_stacks([target], None, gently=True, seconds=SECONDS)
    assert is_alive(target)
    assert not (target.folder / "stacks").exists()


def test_a_stopped_process_is_shown_and_stays_stopped(target: Target) -> None:
    os.killpg(target.pids[0], signal.SIGSTOP)
    os.waitid(os.P_PID, target.pids[0], os.WSTOPPED | os.WNOWAIT)
    assert is_stopped(target.pids[0])
    save_stacks([target], spy(), gently=False, seconds=SECONDS)
    assert is_stopped(target.pids[0])
    assert read_activity((target.folder / "stacks").read_text(), is_stopped=True).place == "rests.py:6"


def test_a_stopped_process_is_not_aborted(target: Target) -> None:
    os.killpg(target.pids[0], signal.SIGSTOP)
    os.waitid(os.P_PID, target.pids[0], os.WSTOPPED | os.WNOWAIT)
    save_stacks([target], None, gently=False, seconds=SECONDS)
    assert is_stopped(target.pids[0])


def test_the_python_process_below_a_shell_is_shown(target: Target) -> None:
    with subprocess.Popen(["sleep", "1000"]) as shell:
        save_stacks([Target(target.folder, (shell.pid, *target.pids))], spy(), gently=True, seconds=SECONDS)
        assert read_activity((target.folder / "stacks").read_text()).place == "rests.py:6"
        shell.kill()


def test_a_process_that_has_ended_and_a_dump_without_time_have_no_stacks(target: Target, tmp_path: Path) -> None:
    save_stacks([target], spy(), gently=True, seconds=0.0)
    save_stacks([Target(tmp_path, (4_000_001,))], spy(), gently=False, seconds=SECONDS)
    assert not (target.folder / "stacks").exists()
    assert is_alive(target)


def test_native_frames_that_hide_the_python_frames_are_not_used(target: Target, tmp_path: Path) -> None:
    """This happens with py-spy on a busy machine, when it cannot follow native frames."""
    lost = tmp_path / "py-spy"
    lost.write_text(
        "#!/bin/sh\n"
        'case "$*" in *--native*) printf \'Process 1: python\\nThread 1 (idle): "MainThread"\\n'
        f'    0x7f1d17e4524a (libc.so.6)\\n\' ;; *) exec {spy()} "$@" ;; esac\n'
    )
    lost.chmod(0o700)
    save_stacks([target], str(lost), gently=False, seconds=SECONDS)
    assert read_activity((target.folder / "stacks").read_text()).place == "rests.py:6"
