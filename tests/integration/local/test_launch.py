"""Launches: their files and output, and that a refused launch leaves nothing."""

from __future__ import annotations

import signal
import sys
from typing import NamedTuple

import pytest

from drumline.load.load import load
from drumline.run.state import Phase
from drumline.store.launch import read_facts
from integration.local.test_terminal import WAITING
from scaffold.terminal import Terminal
from scaffold.waiting import PATIENCE_SECONDS, wait_until
from scaffold.workspace import Run, Workspace

pytestmark = pytest.mark.cold("other plans are made in another way")

BOTH = "roles: {chief: {run: echo first}, worker: {run: echo second}}"


class Launched(NamedTuple):
    """What a launch printed, and the newest run, which it may have started."""

    code: int
    out: str
    err: str
    run: Run


def launch(workspace: Workspace, *words: str) -> Launched:
    """Launch and wait for the end of the command."""
    answer = workspace.run("train", *words)
    return Launched(*answer, workspace.runs()[-1] if workspace.runs() else Run(workspace, "0"))


def test_a_launch_keeps_its_plan_its_spec_and_its_folder(workspace: Workspace) -> None:
    workspace.write_spec(BOTH)
    launched = launch(workspace)
    assert (launched.code, launched.err) == (0, "drumline: run 1 (bad-day): 1 chief and 1 worker on local\n")
    assert launched.run.folder.plan() == load(str(workspace.project / "drumline.yml")).plan_as("1")
    assert launched.run.folder.spec_file.read_bytes() == (workspace.project / "drumline.yml").read_bytes()
    assert read_facts(launched.run.folder)["directory"] == str(workspace.project)


def test_a_supervisor_is_forked_by_a_process_without_threads_and_without_an_event_loop(workspace: Workspace) -> None:
    workspace.write_spec(BOTH)
    counting = workspace.write("counting.py", _COUNTING)
    command = workspace.command("train", program=(sys.executable, str(counting)))
    command.communicate(timeout=PATIENCE_SECONDS)
    assert command.returncode == 0
    assert (workspace.project / "forks").read_text() == "1 thread, loop None\n"


# The command line, which records the number of threads at the fork.
_COUNTING = """
import asyncio, os
from drumline.__main__ import main

fork = os.fork

def counted():
    loop = asyncio._get_running_loop()
    with open("forks", "a") as stream:
        stream.write(f"{len(os.listdir('/proc/self/task'))} thread, loop {loop}\\n")
    os.fork = fork  # what a supervisor forks is not counted
    return fork()

os.fork = counted
main()
"""


def test_train_in_the_background_prints_the_number_of_the_run(workspace: Workspace) -> None:
    workspace.write_spec(BOTH)
    launched = launch(workspace, "-d")
    assert (launched.code, launched.out) == (0, "1\n")
    launched.run.wait_for(Phase.FINISHED)


def test_train_prints_why_a_run_failed(workspace: Workspace) -> None:
    workspace.write_spec("run: echo broken >&2; exit 3")
    launched = launch(workspace)
    assert launched.code == 1
    assert "Run 1 failed. First replica to fail: 1.worker.0, exit code 3" in launched.out


def test_parameters_and_options_of_the_command_line_are_in_the_plan(workspace: Workspace) -> None:
    workspace.write("other.yml", "project: other\nframework: torch\nrun: echo {{ lr }}\nparameters: {lr: 1, seed: 2}\n")
    words = ("-p", "lr=0.5", "--parameter", "seed=7", "--name", "mine", "--no-warm", "--oversubscribe", "other.yml")
    launched = launch(workspace, *words)
    plan = launched.run.folder.plan()
    assert (plan.name, plan.parameters, plan.warm, plan.oversubscribe) == (
        "mine",
        {"lr": "0.5", "seed": "7"},
        None,
        True,
    )
    assert launched.run.log("worker.0") == b"0.5\n"


@pytest.mark.parametrize("where", ["output", "checkpoint"])
def test_a_placeholder_for_the_run_number_has_the_number_of_each_run(workspace: Workspace, where: str) -> None:
    workspace.write_spec(f"{where}: 'at-{{{{ run }}}}'\nrun: echo here")
    launch(workspace)
    again = launch(workspace)
    assert getattr(again.run.folder.plan(), where) == "at-2"


def test_an_invalid_spec_is_refused_with_its_lines(workspace: Workspace) -> None:
    workspace.write_spec("run: echo here\nrolls: 3")
    launched = launch(workspace)
    assert launched.code == 2
    assert launched.err.startswith("drumline.yml:4: rolls: ")
    assert launched.err.splitlines()[1] == "error: one problem; nothing was done"
    assert not workspace.runs()


def test_a_missing_spec_is_refused(workspace: Workspace) -> None:
    launched = launch(workspace)
    assert (launched.code, launched.err.splitlines()[0]) == (2, "error: there is no drumline.yml here")


def test_too_large_resources_are_refused_after_the_warnings(workspace: Workspace) -> None:
    workspace.write("task.py", "import os\nos.environ['TF_CONFIG'] = '{}'\n")
    workspace.write_spec(
        "framework: tensorflow\nresources: {cpus: 4000}\nroles: {worker: {replicas: 2, run: python task.py}}"
    )
    launched = launch(workspace)
    assert launched.code == 2
    warning, error, hint = launched.err.splitlines()
    assert warning.startswith("warning: task.py:2: sets TF_CONFIG itself")
    assert error.startswith("error: ")
    assert "8000" in error
    assert hint == "hint: ask for less, or use `--oversubscribe`"
    assert not workspace.runs()


def test_a_secret_that_is_missing_is_named(workspace: Workspace) -> None:
    workspace.write_spec("run: echo here\nenv: {TOKEN: {from: TOKEN}}")
    launched = launch(workspace)
    assert launched.code == 2
    assert "needs the secret TOKEN from the variable TOKEN, which is not set" in launched.err
    assert not workspace.runs()


def test_a_home_that_cannot_be_written_is_one_clear_error(workspace: Workspace) -> None:
    workspace.write_spec("run: echo here")
    launch(workspace)
    (workspace.home / "last-run").unlink()
    (workspace.home / "last-run").mkdir()
    again = launch(workspace)
    assert again.code == 3
    assert again.err == (
        f"error: cannot keep runs in {workspace.home}: Is a directory\n"
        "hint: set DRUMLINE_HOME to a folder that you may write to\n"
    )
    (workspace.home / "last-run").rmdir()


def test_a_supervisor_that_is_killed_before_it_locks_its_run_is_one_clear_error(workspace: Workspace) -> None:
    workspace.write_spec("run: echo here")
    murder = workspace.write("murder.py", _MURDER)
    command = workspace.command("train", program=(sys.executable, str(murder)))
    _, err = command.communicate(timeout=PATIENCE_SECONDS)
    assert command.returncode == 3
    assert err.startswith("error: the supervisor of run 1 could not start: it was killed\nhint: ")
    assert workspace.run("supervise", "1").out == "started a new supervisor for run 1\n"
    Run(workspace, "1").wait_for(Phase.FINISHED)


# The command line; its supervisor is killed at once.
_MURDER = """
import os, signal
from drumline.__main__ import main

fork = os.fork

def murderous():
    pid = fork()
    if pid == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return pid

os.fork = murderous
main()
"""


def test_ctrl_c_detaches_from_the_run_and_the_run_continues(workspace: Workspace) -> None:
    workspace.write_spec(WAITING)
    terminal = Terminal(workspace, "train")
    try:
        terminal.wait_for("here I am")
        terminal.press_ctrl_c()
        terminal.wait_for("run 1 continues")
        assert terminal.wait() == 130
    finally:
        terminal.close()
        terminal.process.kill()
        terminal.process.wait()
    workspace.write("go", "")
    Run(workspace, "1").wait_for(Phase.FINISHED)


def test_an_interrupt_between_the_creation_of_a_run_and_its_first_line_prints_its_name(workspace: Workspace) -> None:
    workspace.write_spec(WAITING)
    slow = workspace.write("slow.py", _SLOW)
    command = workspace.command("train", program=(sys.executable, str(slow)))
    wait_until(lambda: workspace.exists("made"))
    command.send_signal(signal.SIGINT)
    workspace.write("interrupted", "")
    _, err = command.communicate(timeout=PATIENCE_SECONDS)
    assert command.returncode == 130
    assert "run 1 continues" in err
    workspace.write("go", "")
    Run(workspace, "1").wait_for(Phase.FINISHED)


# The command line, which waits for Ctrl-C after its run was created and before it has a supervisor.
_SLOW = """
import os, time
from drumline.__main__ import main

fork = os.fork

def slowly():
    open("made", "w").close()
    while not os.path.exists("interrupted"):
        time.sleep(0.01)
    os.fork = fork
    return fork()

os.fork = slowly
main()
"""


@pytest.mark.parametrize("module", ["click", "yaml", "drumline.supervise.launch"])
def test_an_interrupt_during_start_up_exits_with_130_and_no_traceback(workspace: Workspace, module: str) -> None:
    workspace.write_spec(WAITING)
    slow = workspace.write("slow.py", _SLOW_IMPORT.replace("MODULE", module))
    command = workspace.command("train", program=(sys.executable, str(slow)))
    wait_until(lambda: workspace.exists("importing"))
    command.send_signal(signal.SIGINT)
    out, err = command.communicate(timeout=PATIENCE_SECONDS)
    assert (command.returncode, out, err.strip()) == (130, "", "")
    assert not workspace.runs()


# The command line, which is interrupted during its imports.
_SLOW_IMPORT = """
import builtins, signal
from drumline.__main__ import main

real = builtins.__import__

def slowly(name, *rest):
    if name == "MODULE":
        open("importing", "w").close()
        while True:
            signal.pause()
    return real(name, *rest)

builtins.__import__ = slowly
main()
"""
