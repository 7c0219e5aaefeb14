"""A killed supervisor is replaced automatically: a keeper starts the next one."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path

import pytest

from drumline.run.event import StopRequested, SupervisorReturned
from drumline.run.state import Phase
from drumline.runtime.keeper import MOST_RETURNS, SUPERVISOR_RETURNS
from drumline.runtime.lock import is_locked
from scaffold.processes import is_alive, kill_and_wait, read_to
from scaffold.waiting import PATIENCE_SECONDS, wait_until
from scaffold.workspace import Run, Workspace

WAITING = "echo $$ >> $HERE/up; until [ -e $HERE/go ]; do sleep 0.05; done"


def returns(run: Run) -> list[SupervisorReturned]:
    """Return the recorded replacements of the supervisor."""
    return [event for event in run.events if isinstance(event, SupervisorReturned)]


def kill(run: Run) -> int:
    """Kill the supervisor; return its pid."""
    pid = wait_until(run.supervisor)
    kill_and_wait(pid)
    return pid


def kill_and_wait_for_next(run: Run, number: int) -> int:
    """Kill the supervisor, and wait until it was replaced for this time; return the pid of the new one."""
    before = kill(run)
    wait_until(lambda: len(returns(run)) == number)
    pid = wait_until(run.supervisor)
    assert pid != before
    return pid


def test_a_replica_that_fails_after_its_supervisor_was_killed_is_restarted(workspace: Workspace) -> None:
    run = workspace.train("run: echo $$ >> $HERE/up; exec sleep 1000\nrestart: 1")
    (first,) = workspace.wait_numbers("up", 1)
    kill_and_wait_for_next(run, 1)
    os.kill(first, signal.SIGKILL)
    workspace.wait_numbers("up", 2)
    wait_until(lambda: run.state.attempt == 1)
    assert returns(run) == [SupervisorReturned(1, MOST_RETURNS)]
    assert f"1 has a supervisor again, restarted automatically, 1 of {MOST_RETURNS}" in workspace.run("events", "1").out
    assert workspace.run("kill", "1").code == 0
    assert not any(map(is_alive, workspace.numbers("up")))


def test_a_replica_that_fails_while_there_is_no_supervisor_is_restarted(workspace: Workspace) -> None:
    """The last keeper checks for a supervisor once more before it exits."""
    run = workspace.train("run: echo $$ >> $HERE/up; exec sleep 1000\nrestart: 1")
    (first,) = workspace.wait_numbers("up", 1)
    kill(run)
    os.kill(first, signal.SIGKILL)
    workspace.wait_numbers("up", 2)
    wait_until(lambda: run.state.attempt == 1)
    assert workspace.run("kill", "1").code == 0


@pytest.mark.parametrize("workers", [2, 8])
def test_several_keepers_start_one_supervisor(workspace: Workspace, workers: int) -> None:
    run = workspace.train(f"roles: {{worker: {workers}}}\nrun: {WAITING}")
    workspace.wait_numbers("up", workers)
    kill_and_wait_for_next(run, 1)
    kill_and_wait_for_next(run, 2)
    assert returns(run) == [SupervisorReturned(1, MOST_RETURNS), SupervisorReturned(2, MOST_RETURNS)]
    workspace.write("go", "")
    run.wait_for(Phase.FINISHED)
    assert len(workspace.numbers("up")) == workers


def test_a_supervisor_is_replaced_a_limited_number_of_times(workspace: Workspace) -> None:
    run = workspace.train(f"run: {WAITING}")
    workspace.wait_numbers("up", 1)
    for number in range(1, MOST_RETURNS + 1):
        kill_and_wait_for_next(run, number)
    kill(run)
    waiting = workspace.run("wait", "1")
    assert waiting.code == 3
    assert "the supervisor of run 1 is gone" in waiting.err
    workspace.write("go", "")
    wait_until(partial(run.is_over, "worker.0"))  # the keeper has checked for the last time
    assert not is_locked(run.folder.lock_file)
    assert len(returns(run)) == MOST_RETURNS
    assert workspace.run("supervise", "1").code == 0
    run.wait_for(Phase.FINISHED)


def test_a_supervisor_that_cannot_start_is_started_a_limited_number_of_times(workspace: Workspace) -> None:
    """As a supervisor with a defect: its journal cannot be opened."""
    run = workspace.train(f"run: {WAITING}")
    workspace.wait_numbers("up", 1)
    kept = run.folder.journal_file.rename(workspace.path / "kept")
    run.folder.journal_file.mkdir()
    kill(run)
    count = run.folder.path / SUPERVISOR_RETURNS
    wait_until(lambda: count.exists() and count.read_text() == str(MOST_RETURNS))
    wait_until(lambda: run.said().count("Traceback") >= MOST_RETURNS)
    run.folder.journal_file.rmdir()
    kept.rename(run.folder.journal_file)
    workspace.write("go", "")
    wait_until(partial(run.is_over, "worker.0"))
    assert run.supervisor() is None
    assert count.read_text() == str(MOST_RETURNS)
    assert returns(run) == []
    assert workspace.run("supervise", "1").code == 0
    run.wait_for(Phase.FINISHED)


@pytest.mark.parametrize("words", [[], ["--force"]])
def test_kill_of_a_run_just_after_its_supervisor_died_ends_it(workspace: Workspace, words: list[str]) -> None:
    run = workspace.train(f"roles: {{worker: 2}}\nrun: {WAITING}")
    pids = workspace.wait_numbers("up", 2)
    kill(run)
    assert workspace.run("kill", *words, "1").code == 0
    assert not any(map(is_alive, pids))
    assert run.state.phase is Phase.KILLED
    wait_until(lambda: not is_locked(run.folder.path / SUPERVISOR_RETURNS) and run.supervisor() is None)
    assert run.state.phase is Phase.KILLED


def test_a_supervisor_that_was_killed_after_the_user_killed_the_run_is_not_replaced(workspace: Workspace) -> None:
    run = workspace.train("""
        run: trap '' TERM; echo $$ >> $HERE/up; until [ -e $HERE/go ]; do sleep 0.05; done
        timeouts: {grace: 1h}
    """)
    workspace.wait_numbers("up", 1)
    killer = workspace.command("kill", "1")
    wait_until(lambda: any(isinstance(event, StopRequested) for event in run.events))
    kill_and_wait(killer.pid)
    killer.communicate(timeout=PATIENCE_SECONDS)
    kill(run)
    count = run.folder.path / SUPERVISOR_RETURNS
    wait_until(lambda: count.exists() and not is_locked(count) and not run.folder.lock_file.read_bytes())
    workspace.write("go", "")
    wait_until(partial(run.is_over, "worker.0"))
    assert returns(run) == []
    assert workspace.run("kill", "1").code == 0
    assert run.state.phase is Phase.KILLED


def test_no_supervisor_is_started_after_the_end_of_a_run(workspace: Workspace) -> None:
    run = workspace.train(f"roles: {{worker: 2}}\nrun: {WAITING}")
    workspace.wait_numbers("up", 2)
    workspace.write("go", "")
    run.wait_for(Phase.FINISHED)
    wait_until(lambda: not is_locked(run.folder.lock_file))
    assert run.folder.lock_file.read_bytes() == b""
    assert not (run.folder.path / SUPERVISOR_RETURNS).exists()


def test_train_and_wait_continue_when_a_supervisor_is_replaced(workspace: Workspace) -> None:
    workspace.write_spec("run: echo begun; until [ -e $HERE/go ]; do sleep 0.05; done; echo done")
    command = workspace.command("train")
    read_to(command, "begun")
    (run,) = workspace.runs()
    waiting = workspace.command("wait", "1")
    kill_and_wait_for_next(run, 1)
    workspace.write("go", "")
    out, err = command.communicate(timeout=PATIENCE_SECONDS)
    assert (command.returncode, "done" in out) == (0, True), err
    assert waiting.wait(PATIENCE_SECONDS) == 0
    waiting.communicate()


def test_a_replaced_supervisor_has_the_environment_and_secrets_of_the_previous_one(
    workspace: Workspace,
) -> None:
    spec = """
        env: {TOKEN: {from: TOKEN}}
        run: echo $TOKEN $DRUMLINE_ATTEMPT; echo $$ >> $HERE/up; exec sleep 1000
        restart: 1
    """
    run = workspace.train(spec, env={"TOKEN": "hush-hush", "OTHER": "kept"})
    (first,) = workspace.wait_numbers("up", 1)
    pid = kill_and_wait_for_next(run, 1)
    variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    assert {b"TOKEN=hush-hush", b"OTHER=kept"} <= set(variables)
    assert b"hush-hush" not in Path(f"/proc/{pid}/cmdline").read_bytes()
    os.kill(first, signal.SIGKILL)
    workspace.wait_numbers("up", 2)
    wait_until(lambda: run.log("worker.0", 1) == b"hush-hush 1\n")
    written = [path for path in workspace.home.rglob("*") if path.is_file() and b"hush-hush" in path.read_bytes()]
    assert {path.name for path in written} == {"log"}
    assert workspace.run("kill", "1").code == 0


def test_a_supervisor_that_a_keeper_started_is_not_ended_with_the_replica_of_the_keeper(
    workspace: Workspace,
) -> None:
    run = workspace.train("""
        roles:
          worker:
            replicas: 2
            run: "echo $$ >> $HERE/up; until [ -e $HERE/go-$DRUMLINE_INDEX ]; do sleep 0.05; done"
    """)
    workspace.wait_numbers("up", 2)
    pid = kill_and_wait_for_next(run, 1)
    workspace.write("go-0", "")
    wait_until(partial(run.is_over, "worker.0"))
    assert run.supervisor() == pid
    workspace.write("go-1", "")
    run.wait_for(Phase.FINISHED)
