"""Data that a run prepares before any replica trains: complete or not at all, once, and by one of several runs."""

from __future__ import annotations

import os
import signal

from drumline.run.state import Phase
from scaffold.processes import kill_and_wait
from scaffold.waiting import wait_until
from scaffold.workspace import Workspace

# Waits at a named point until the test lets it continue.
WAIT = "until [ -e $HERE/go ]; do sleep 0.05; done"
SPEC = """
    run: cat $DATA_DIR/words
    roles: {worker: 2}
    data: {path: data, prepare: "COMMAND"}
"""


def spec(command: str) -> str:
    return SPEC.replace("COMMAND", command)


def test_data_is_prepared_before_any_replica_starts_and_only_once(workspace: Workspace) -> None:
    text = spec("echo made >> $HERE/times; echo hello > $DATA_DIR/words")
    for number in (1, 2):
        run = workspace.train(text)
        run.wait_for(Phase.FINISHED)
        assert run.log("worker.0") == run.log("worker.1") == b"hello\n"
        assert (workspace.project / "times").read_text() == "made\n", f"run {number}"
    assert b"exists" in run.log("prepare")
    assert sorted(entry.name for entry in workspace.project.iterdir()) == ["data", "drumline.yml", "times"]


def test_a_failed_preparation_ends_the_run_and_the_next_run_continues_from_its_files(workspace: Workspace) -> None:
    run = workspace.train(spec("echo half >> $DATA_DIR/words; test -e $HERE/whole"), env={})
    state = run.wait_for(Phase.FAILED)
    assert state.ending
    assert state.ending.reason == "NotPrepared"
    assert run.cause.exit.code == 1
    assert not workspace.exists("data")
    assert run.log("worker.0") == b""
    workspace.write("whole", "")
    run = workspace.train(spec("echo half >> $DATA_DIR/words; test -e $HERE/whole"))
    run.wait_for(Phase.FINISHED)
    assert run.log("worker.0") == b"half\nhalf\n"


def test_several_data_folders_are_prepared_in_order_and_shown_by_name(workspace: Workspace) -> None:
    run = workspace.train("""
        run: cat $DATA_DIR_WORDS/all
        data:
          - {name: raw, path: raw, prepare: "echo raw > $DATA_DIR/all"}
          - {name: words, path: words, prepare: "tr a-z A-Z < raw/all > $DATA_DIR/all"}
    """)
    run.wait_for(Phase.FINISHED)
    assert run.log("worker.0") == b"RAW\n"
    shown = workspace.run("logs", f"{run.id}.prepare-words").out
    assert f"{run.id}.prepare-words" in shown
    assert f"{run.id}.prepare-raw" not in shown
    assert f"{run.id}.prepare-raw " in workspace.run("status", run.id).out
    missing = workspace.run("logs", f"{run.id}.prepare-other")
    assert missing.code == 4
    assert f"{run.id}.prepare-raw" in missing.err


def test_of_two_runs_with_the_same_data_one_prepares_it_and_the_other_waits(workspace: Workspace) -> None:
    text = spec(f"echo $$ >> $HERE/makers; {WAIT}; echo hello > $DATA_DIR/words")
    one = workspace.train(text)
    workspace.wait_numbers("makers", 1)
    other = workspace.train(text)
    wait_until(lambda: b"by another run" in other.log("prepare"))
    workspace.write("go", "")
    for run in (one, other):
        run.wait_for(Phase.FINISHED)
        assert run.log("worker.1") == b"hello\n"
    assert len(workspace.numbers("makers")) == 1


def test_a_run_can_be_killed_while_its_data_is_prepared(workspace: Workspace) -> None:
    run = workspace.train(spec(f"echo $$ > $HERE/maker; {WAIT}"))
    workspace.wait_numbers("maker", 1)
    assert workspace.run("status", run.id).out.count("CREATED") == 2
    answer = workspace.run("kill", run.id)
    assert answer.code == 0, answer.err
    run.wait_for(Phase.KILLED)
    assert not workspace.exists("data")


def test_a_supervisor_killed_during_a_preparation_is_replaced_and_data_is_prepared_once(workspace: Workspace) -> None:
    run = workspace.train(spec(f"echo $$ >> $HERE/makers; {WAIT}; echo hello > $DATA_DIR/words"))
    workspace.wait_numbers("makers", 1)
    run.kill_supervisor()
    assert workspace.run("supervise", run.id).code == 0
    workspace.write("go", "")
    run.wait_for(Phase.FINISHED)
    assert len(workspace.numbers("makers")) == 1
    assert run.log("worker.0") == b"hello\n"


def test_a_preparation_that_is_killed_by_a_signal_is_reported_with_it(workspace: Workspace) -> None:
    run = workspace.train(spec(f"echo $$ > $HERE/maker; {WAIT}"))
    os.kill(workspace.wait_numbers("maker", 1)[0], signal.SIGKILL)
    run.wait_for(Phase.FAILED)
    assert run.cause.exit.signal == signal.SIGKILL


def test_a_preparation_with_killed_keeper_and_process_ends_the_run(workspace: Workspace) -> None:
    run = workspace.train(spec(f"echo $$ > $HERE/maker; {WAIT}"))
    workspace.wait_numbers("maker", 1)
    kill_and_wait(run.keeper("prepare"))
    run.wait_for(Phase.FAILED)
    assert run.cause.reason == "NotPrepared"


def test_a_preparation_that_cannot_run_or_write_is_reported_in_its_log(workspace: Workspace) -> None:
    run = workspace.train("run: 'true'\ndata: {path: data, prepare: {argv: [no-such-command]}}")
    run.wait_for(Phase.FAILED)
    assert run.cause.exit.code == 127
    assert b"cannot run no-such-command: no such command" in run.log("prepare")
    workspace.write("file", "")
    run = workspace.train("run: 'true'\ndata: {path: file/data, prepare: 'true'}")
    run.wait_for(Phase.FAILED)
    assert b"cannot prepare" in run.log("prepare")


def test_a_missing_secret_of_a_preparation_is_reported_before_anything_starts(workspace: Workspace) -> None:
    workspace.write_spec("run: 'true'\nenv: {TOKEN: {from: NO_SUCH_TOKEN}}\ndata: {path: data, prepare: 'true'}")
    answer = workspace.run("train")
    assert answer.code == 2
    assert "prepare needs the secret TOKEN" in answer.err
    assert workspace.runs() == []
