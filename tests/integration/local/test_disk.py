"""A full disk: only replicas that write fail, the run is ended with the reason, and no process is left."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from drumline.run.state import Phase
from scaffold.processes import is_alive
from scaffold.waiting import wait_until
from scaffold.workspace import Workspace, mounted

FULL = os.strerror(errno.ENOSPC)


@pytest.fixture
def cramped(workspace: Workspace) -> Iterator[Workspace]:
    """Yield a workspace with its home on a disk of half a megabyte."""
    with mounted(workspace.home, "512k"):
        yield workspace
        workspace.leave()
        workspace.clear()


def fill(folder: Path) -> Path:
    """Fill a disk completely; return the file."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as stream:
        for size in (4096, 1):
            with suppress(OSError):
                while stream.write(b"x" * size):
                    pass
    return filler


def test_a_replica_that_fills_the_disk_with_its_log_fails_alone(cramped: Workspace) -> None:
    run = cramped.train("run: yes all work and no play")
    run.wait_for(Phase.FAILED)
    assert run.exit("worker.0").code == 1
    assert str(run.cause.replica) == "worker.0"
    answer = cramped.run("logs", "--tail", "1", run.id)
    assert answer.code == 0
    assert "all work" in answer.out


def test_a_replica_that_ignores_write_errors_continues_on_a_full_disk(cramped: Workspace) -> None:
    run = cramped.train("run: cat /dev/zero; echo $$ > $HERE/up; until [ -e $HERE/go ]; do sleep 0.05; done; exit 0")
    cramped.wait_numbers("up", 1)
    run.wait_for(Phase.RUNNING)
    cramped.write("go", "")
    run.wait_for(Phase.FINISHED)


def test_the_end_of_a_run_is_recorded_on_a_full_disk(cramped: Workspace) -> None:
    run = cramped.train("roles: {worker: 4}\nrun: echo $$ >> $HERE/up; exec sleep 1000\ntimeouts: {grace: 1}")
    cramped.wait_numbers("up", 4)
    run.wait_started()
    filler = fill(cramped.home)
    assert cramped.run("kill", run.id).out == f"killed run {run.id}; none of its processes is left\n"
    assert {each.phase for each in run.state.replicas.values()} == {Phase.KILLED}
    assert {run.exit(f"worker.{index}").signal for index in range(4)} == {15}
    filler.unlink()


def test_kill_works_on_a_full_disk_without_a_supervisor(cramped: Workspace) -> None:
    run = cramped.train("run: echo $$ >> $HERE/up; exec sleep 1000")
    (replica,) = cramped.wait_numbers("up", 1)
    run.kill_supervisor()
    filler = fill(cramped.home)
    cramped.run("kill", run.id)
    assert not is_alive(replica)
    filler.unlink()
    cramped.run("kill", run.id)
    assert run.state.phase in (Phase.KILLED, Phase.FAILED)


def test_no_attempt_starts_on_a_full_disk(cramped: Workspace) -> None:
    run = cramped.train("run: echo $$ >> $HERE/up; until [ -e $HERE/go ]; do sleep 0.05; done; exit 1\nrestart: 5")
    cramped.wait_numbers("up", 1)
    filler = fill(cramped.home)
    cramped.write("go", "")
    state = run.wait_for(Phase.FAILED)
    assert state.ending
    assert state.ending.reason == "EngineFailed"
    assert FULL in run.cause.exit.message
    assert FULL in cramped.run("logs", run.id).out
    filler.unlink()


def test_no_run_is_created_on_a_full_disk(cramped: Workspace) -> None:
    filler = fill(cramped.home)
    cramped.write_spec("run: 'true'")
    answer = cramped.run("train")
    assert answer.code == 3
    assert FULL in answer.err
    assert cramped.runs() == []
    filler.unlink()


@pytest.mark.parametrize("replicas", [1, 12])
def test_a_run_without_a_writable_journal_is_ended_and_can_be_concluded_later(
    workspace: Workspace, replicas: int
) -> None:
    # No file may grow beyond this size: after some attempts the journal cannot record another one.
    workspace.command_prefix = ("prlimit", f"--fsize={1024 + 512 * replicas}")
    run = workspace.train(f"""
        roles: {{worker: {replicas}}}
        run: echo $$ >> $HERE/up; until [ -e $HERE/go ]; do sleep 0.05; done; exit 1
        restart: {{crash: 50, backoff: {{initial: 0.01, maximum: 0.01}}}}
    """)
    workspace.wait_numbers("up", replicas)
    workspace.write("go", "")
    wait_until(lambda: run.supervisor() is None)
    wait_until(lambda: not workspace.processes())
    assert "File too large" in run.said()
    assert not run.state.phase.is_final
    assert run.state.attempt < 50
    answer = workspace.run("kill", run.id)
    assert answer.code == 3
    assert "its end could not be written down" in answer.err
    wait_until(lambda: not workspace.processes())
    workspace.command_prefix = ()
    assert workspace.run("kill", run.id).code == 0
    assert run.state.phase.is_final
