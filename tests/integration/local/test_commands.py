"""Commands that cannot run, or end before they print a line."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from drumline.run.state import Phase
from drumline.run.traces import METRICS
from scaffold.waiting import wait_until
from scaffold.workspace import Workspace


def test_a_replica_that_exits_without_output_is_reported_like_any_other(workspace: Workspace) -> None:
    run = workspace.train("run: exit 7")
    run.wait_for(Phase.FAILED)
    assert (run.log("worker.0"), run.exit("worker.0").code, run.cause.exit.code) == (b"", 7, 7)


@pytest.mark.parametrize(
    ("command", "code", "line"),
    [
        ("nowhere-to-be-found", 127, "drumline: cannot run nowhere-to-be-found: no such command\n"),
        ("mine", 127, "drumline: cannot run mine: no such command\n"),  # in the project folder, which is not in PATH
        ("./missing", 127, "drumline: cannot run ./missing: no such command\n"),
        ("./data.txt", 126, "drumline: cannot run ./data.txt: Permission denied\n"),
        (".", 126, "drumline: cannot run .: Permission denied\n"),
        ("./data.txt/x", 127, "drumline: cannot run ./data.txt/x: no such command\n"),
        ("./stranger.sh", 127, "drumline: cannot run ./stranger.sh: its interpreter does not exist\n"),
    ],
)
def test_a_command_that_cannot_run_is_reported_in_one_line(
    workspace: Workspace, command: str, code: int, line: str
) -> None:
    workspace.write("data.txt", "")
    workspace.write("mine", "#!/bin/sh\n").chmod(0o755)
    workspace.write("stranger.sh", "#!/no/such/interpreter\n").chmod(0o755)
    run = workspace.train(f"run: {{argv: ['{command}']}}")
    run.wait_for(Phase.FAILED)
    assert (run.exit("worker.0").code, run.log("worker.0").decode()) == (code, line)
    assert run.cause.reason == "CannotExecute"


def test_a_script_without_a_shebang_is_run_by_the_shell(workspace: Workspace) -> None:
    workspace.write("bare.sh", 'echo "$0 $1 in a shell"').chmod(0o755)
    run = workspace.train("run: {argv: [./bare.sh, runs]}")
    run.wait_for(Phase.FINISHED)
    assert run.log("worker.0") == b"./bare.sh runs in a shell\n"


def test_a_command_is_looked_for_on_the_path_of_its_own_environment(workspace: Workspace) -> None:
    (workspace.project / "bin").mkdir()
    workspace.write("bin/mine", '#!/bin/sh\necho "$1 $(pwd)"\n').chmod(0o755)
    run = workspace.train("run: {argv: [mine, runs]}\nworkdir: bin\nenv: {PATH: '.:/usr/bin:/bin'}")
    run.wait_for(Phase.FINISHED)
    assert run.log("worker.0").decode() == f"runs {workspace.project}/bin\n"


def test_a_workdir_that_was_removed_is_named(workspace: Workspace) -> None:
    (workspace.project / "work").mkdir()
    run = workspace.train("""
        run: if [ $DRUMLINE_ATTEMPT = 0 ]; then rmdir $HERE/work; exit 1; fi
        workdir: work
        restart: {crash: 1}
    """)
    state = run.wait_for(Phase.FAILED)
    assert state.attempt == 1
    assert f"workdir `work` is not a folder in {workspace.project}" in workspace.run("logs", run.id).out


def test_a_workdir_without_permission_to_enter_it_is_named(stranger: Workspace) -> None:
    work = stranger.project / "work"
    work.mkdir(mode=0)
    run = stranger.train("run: 'true'\nworkdir: work")
    run.wait_for(Phase.FAILED)
    assert run.exit("worker.0").code == 126
    assert run.log("worker.0").decode() == f"drumline: cannot work in {work}: Permission denied\n"


def test_a_missing_workdir_is_refused_before_a_run_is_created(workspace: Workspace) -> None:
    workspace.write_spec("run: 'true'\nworkdir: nowhere")
    answer = workspace.run("train")
    assert answer.code == 2
    assert "workdir `nowhere` is not a folder" in answer.err
    assert workspace.runs() == []


def test_a_replica_starts_with_the_users_signal_dispositions_descriptors_and_limits(workspace: Workspace) -> None:
    run = workspace.train("run: {argv: [sh, -c, 'grep SigIgn /proc/self/status; ls /proc/self/fd; umask; ulimit -n']}")
    run.wait_for(Phase.FINISHED)
    words = run.log("worker.0").decode().split()
    assert words[2:6] == ["0", "1", "2", "3"]  # the last one is the folder that ls reads
    command = ["sh", "-c", "grep SigIgn /proc/self/status; umask; ulimit -n"]
    _, ignored, *ours = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    always_heard = sum(1 << (number - 1) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT))
    # Two signals are internal to the C library, which ignores them in its child processes and hides them from others.
    ours_to_choose = sum(1 << (number - 1) for number in signal.valid_signals())
    assert int(words[1], 16) & ours_to_choose == int(ignored, 16) & ours_to_choose & ~always_heard
    assert words[6:] == ours


@pytest.mark.cold("a warm replica is not started by the supervisor")
def test_a_replica_is_not_killed_by_the_pipe_of_a_supervisor_that_died(workspace: Workspace) -> None:
    # The first replica kills the supervisor; the others become replicas when no supervisor reads them any more.
    # The fork server is between the supervisor and the keeper.
    workspace.write(
        "assassin.sh",
        "read -r _ _ _ forks _ < /proc/$PPID/stat; read -r _ _ _ parent _ < /proc/$forks/stat\n"
        "kill -9 $parent; echo $parent > killed",
    )
    workspace.write_spec("""
        roles: {worker: {replicas: 16, run: echo up, first: {run: sh assassin.sh}}}
    """)
    workspace.run("train", "-d")
    (run,) = workspace.runs()
    workspace.wait_numbers("killed", 1)
    assert workspace.run("supervise", run.id).code == 0  # unless the supervisor is back already
    state = run.wait_for(Phase.FINISHED)
    assert {(each.exit.code, each.exit.signal) for each in state.replicas.values() if each.exit} == {(0, None)}


def test_a_run_with_too_few_processes_fails_with_the_reason(stranger: Workspace) -> None:
    stranger.command_prefix = ("prlimit", "--nproc=12", *stranger.command_prefix)
    stranger.write_spec("roles: {worker: {replicas: 30, run: exec sleep 1000}}\ntimeouts: {grace: 1}")
    stranger.run("train", "-d")
    (run,) = stranger.runs()
    state = run.wait_for(Phase.FAILED)
    assert "Resource temporarily unavailable" in f"{state.ending}{[run.log(f'worker.{i}') for i in range(30)]}"
    assert "Traceback" not in run.said()


def test_a_supervisor_continues_when_it_cannot_start_auxiliary_processes(stranger: Workspace) -> None:
    for attempts in range(1, 21):
        run = stranger.train("run: echo $$ >> $HERE/up; exec sleep 1000\ntimeouts: {grace: 1}")
        stranger.wait_numbers("up", attempts)  # the limit is for what is started after the replica
        facts = run.folder.facts_file.stat().st_ino
        supervisor = wait_until(run.supervisor)
        subprocess.run([*stranger.command_prefix, "prlimit", "--pid", str(supervisor), "--nproc=1:1"], check=True)
        measured = run.trace_dir("worker.0") / METRICS  # when the supervisor has looked up the revision of the code
        wait_until(lambda: measured.exists() or run.supervisor() != supervisor)  # noqa: B023
        assert run.supervisor() == supervisor
        assert run.said() == ""
        assert stranger.run("kill", run.id).code == 0
        if run.folder.facts_file.stat().st_ino == facts:
            return  # the revision was not recorded: its process could not start
    raise AssertionError("the supervisor had its child before the limit, each time")


@pytest.mark.parametrize("number", [30, 87, 90, 92, 100])
def test_a_run_with_too_few_descriptors_fails_with_the_reason(workspace: Workspace, number: int) -> None:
    workspace.command_prefix = ("prlimit", f"--nofile={number}:{number}")
    run = workspace.train("roles: {worker: {replicas: 40, run: exec sleep 1000}}\ntimeouts: {grace: 1}")
    run.wait_for(Phase.FAILED)
    assert "Too many open files" in run.cause.exit.message
    assert "Traceback" not in run.said()


def test_a_replica_that_ends_by_a_signal_is_reported_with_it(workspace: Workspace) -> None:
    run = workspace.train("run: kill -SEGV $$")
    run.wait_for(Phase.FAILED)
    assert run.exit("worker.0").signal == signal.SIGSEGV
    said = workspace.run("logs", run.id).out
    assert "killed by signal 11 (SEGV)" in said


def test_a_nested_run_ends_with_the_replica_that_started_it(workspace: Workspace) -> None:
    workspace.write("inner.yml", "project: inner\nframework: plain\nrun: echo $$ > $HERE/inner; exec sleep 1000\n")
    run = workspace.train(f"run: {sys.executable} -m drumline train inner.yml")
    workspace.wait_numbers("inner", 1)
    assert workspace.run("kill", run.id).code == 0
    inner = next(each for each in workspace.runs() if each.id != run.id)
    wait_until(lambda: not workspace.processes())
    assert workspace.run("kill", inner.id).code == 0  # its supervisor was killed before it could record the end


def test_a_refused_run_leaves_no_supervisor_process(workspace: Workspace) -> None:
    workspace.write_spec("run: 'true'\nnonsense: 1")
    answer = workspace.run("train")
    assert answer.code == 2
    assert answer.err.count("nonsense") == 1
    wait_until(lambda: not workspace.processes())
    assert workspace.runs() == []
