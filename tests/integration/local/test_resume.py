"""Preempted, killed and failed runs are resumed: the same run with its next attempt."""

from __future__ import annotations

import os
import shutil
import signal

import pytest

from drumline.run.event import AttemptPlaced, ResumeRequested, StopRequested, SupervisorReturned
from drumline.run.state import Phase
from integration.local.test_clocks import leave_alone, move_to_another_boot
from scaffold.waiting import PATIENCE_SECONDS, wait_until
from scaffold.workspace import Run, Workspace

# Saves its step on TERM; the next attempt continues from the saved step, and finishes.
SAVING = """
roles: {worker: 2}
run: |
  saved=$CHECKPOINT_DIR/$DRUMLINE_INDEX
  trap 'echo 7 > $saved; exit 0' TERM
  echo $$ >> $HERE/up
  if [ -e $saved ]; then echo "attempt $DRUMLINE_ATTEMPT of run $DRUMLINE_RUN goes on from $(cat $saved)"; exit 0; fi
  while :; do sleep 0.05; done
"""
# Runs for ever, unless a file exists.
RUNS_UNTIL_STOPPED = "run: 'echo $$ >> $HERE/up; until [ -e $HERE/go ]; do sleep 0.05; done'\ntimeouts: {grace: 1}"


def preempt(run: Run) -> None:
    """Terminate a run's supervisor, as a preemption of the machine does."""
    os.kill(wait_until(run.supervisor), signal.SIGTERM)
    run.wait_for(Phase.KILLED)
    wait_until(lambda: run.supervisor() is None)


def test_a_preempted_run_saves_names_the_command_that_resumes_it_and_continues_from_its_checkpoint(
    workspace: Workspace,
) -> None:
    workspace.write_spec(SAVING)
    watching = workspace.command("train")
    run = wait_until(lambda: next(iter(workspace.runs()), None))
    workspace.wait_numbers("up", 2)
    preempt(run)
    shown, _ = watching.communicate(timeout=PATIENCE_SECONDS)
    assert watching.returncode == 1
    assert "Reason: Preempted" in shown
    assert "Message: `drumline resume 1` goes on with it" in shown
    assert (run.state.phase, run.state.ending and run.state.ending.reason) == (Phase.KILLED, "Preempted")
    assert {each.reason for each in run.state.replicas.values()} == {"Preempted"}
    assert "preempted; `drumline resume 1` goes on with it" in workspace.run("status").out
    assert "was preempted: its supervisor was asked to exit" in workspace.run("events", "1").out

    workspace.write_spec("run: exit 9")  # the spec of the folder is not that of the run
    answer = workspace.run("resume", "1")
    assert (answer.code, answer.err) == (0, "drumline: run 1 (bad-day) continues with attempt 1\n")
    assert answer.out.count("attempt 1 of run 1 goes on from 7") == 2
    lines = answer.out.splitlines()
    assert lines[0].endswith("--> PENDING")
    assert lines[-1].endswith("--> FINISHED")
    assert "Preempted" not in answer.out  # earlier output is in the logs, and was shown before
    assert (run.state.phase, run.state.attempt) == (Phase.FINISHED, 1)
    assert "attempt 0: it was preempted" in workspace.run("status", "1").out
    assert "Reason: Preempted" in workspace.run("logs", "1").out
    assert SupervisorReturned not in [type(event) for event in run.events]


def test_a_failed_run_that_is_resumed_has_full_budgets_again(workspace: Workspace) -> None:
    run = workspace.train("run: 'echo $$ >> $HERE/up; [ -e $HERE/go ] || exit 3'\nrestart: 1")
    run.wait_for(Phase.FAILED)
    assert workspace.run("resume", run.id, "-d").out == "1\n"
    wait_until(lambda: run.state.attempt == 3 and run.state.phase is Phase.FAILED)
    workspace.write("go", "")
    assert workspace.run("resume", run.id).code == 0
    assert len(workspace.numbers("up")) == 5
    assert [cause.attempt for cause in run.state.causes] == [0, 1, 2, 3]


def test_the_time_limit_of_a_run_starts_again_when_it_is_resumed(workspace: Workspace) -> None:
    run = workspace.train(f"{RUNS_UNTIL_STOPPED.replace('grace: 1', 'grace: 1, run: 3')}")
    run.wait_for(Phase.FAILED)
    workspace.write("go", "")
    assert workspace.run("resume", run.id).code == 0


def test_resume_of_a_finished_running_or_unknown_run_is_refused_with_a_hint(workspace: Workspace) -> None:
    done = workspace.train("run: 'true'")
    done.wait_for(Phase.FINISHED)
    assert workspace.run("resume", done.id) == (
        2,
        "",
        "error: run 1 has finished: there is nothing to go on with\nhint: `drumline train` starts another\n",
    )
    run = workspace.train(RUNS_UNTIL_STOPPED)
    workspace.wait_numbers("up", 1)
    run.wait_for(Phase.RUNNING)
    assert workspace.run("resume", run.id).err == "error: run 2 goes on: RUNNING\nhint: `drumline logs -f 2` shows it\n"
    run.kill_supervisor()
    assert "`drumline supervise 2` looks after it again" in workspace.run("resume", run.id).err
    assert workspace.run("resume", f"{run.id}.worker.0").code == 2
    assert workspace.run("resume", "9").code == 4
    assert workspace.run("kill", "--force", run.id).code == 0
    assert ResumeRequested not in [type(event) for event in (*run.events, *done.events)]


def test_a_run_without_its_secret_or_its_folder_is_not_resumed(workspace: Workspace) -> None:
    workspace.write_spec("workdir: code\nrun: sleep 1000\nenv: {TOKEN: {from: TOKEN}}")
    (workspace.project / "code").mkdir()
    workspace.run("train", "-d", env={"TOKEN": "x"})
    (run,) = workspace.runs()
    assert workspace.run("kill", run.id).code == 0
    assert "needs the secret TOKEN from the variable TOKEN, which is not set" in workspace.run("resume", run.id).err
    shutil.rmtree(workspace.project / "code")
    assert "workdir `code` is not a folder" in workspace.run("resume", run.id, env={"TOKEN": "x"}).err
    assert run.state.phase is Phase.KILLED


def test_of_simultaneous_resume_commands_one_resumes_the_run_and_the_others_report_that(workspace: Workspace) -> None:
    run = workspace.train(RUNS_UNTIL_STOPPED)
    workspace.wait_numbers("up", 1)
    workspace.run("kill", run.id)
    commands = [workspace.command("resume", "-d", run.id) for _ in range(5)]
    answers = [command.communicate(timeout=PATIENCE_SECONDS) for command in commands]
    assert sorted(command.returncode for command in commands) == [0, 2, 2, 2, 2]
    assert sum("error: run 1 goes on" in err for _, err in answers) == 4
    assert len(workspace.wait_numbers("up", 2)) == 2
    assert [type(event) for event in run.events].count(ResumeRequested) == 1
    assert workspace.run("kill", run.id).code == 0


@pytest.mark.parametrize("other", ["rm", "kill"])
def test_a_run_that_is_resumed_while_it_is_removed_or_killed_is_resumed_or_ended_completely(
    workspace: Workspace, other: str
) -> None:
    for number in range(1, 3):
        run = workspace.train(RUNS_UNTIL_STOPPED)
        workspace.wait_numbers("up", 1)
        workspace.run("kill", run.id)
        first, second = workspace.command("resume", "-d", run.id), workspace.command(other, run.id)
        resumed, said = first.communicate(timeout=PATIENCE_SECONDS)[1], second.communicate(timeout=PATIENCE_SECONDS)[1]
        assert "Traceback" not in resumed + said
        if run.path.exists():
            assert (first.returncode, run.state.resumes) == (0, 1), resumed
            workspace.run("kill", run.id)
            assert run.state.phase is Phase.KILLED
        else:
            assert (first.returncode, second.returncode) in ((4, 0), (3, 0)), (resumed, said)
        assert str(number) == run.id


def test_a_run_that_is_killed_and_resumed_at_once_does_not_delay_the_kill(workspace: Workspace) -> None:
    run = workspace.train("run: trap '' TERM; echo $$ >> $HERE/up; while :; do sleep 0.05; done\ntimeouts: {grace: 1}")
    workspace.wait_numbers("up", 1)
    killer = workspace.command("kill", run.id)
    wait_until(lambda: any(isinstance(event, StopRequested) for event in run.events))
    run.wait_for(Phase.KILLED)
    assert workspace.run("resume", "-d", run.id).code == 0
    out, _ = killer.communicate(timeout=PATIENCE_SECONDS)
    assert "run 1" in out
    assert workspace.run("kill", "--force", run.id).code == 0


def test_a_run_of_another_boot_is_resumed_with_its_next_attempt(workspace: Workspace) -> None:
    run = workspace.train(RUNS_UNTIL_STOPPED)
    workspace.wait_numbers("up", 1)
    run.wait_for(Phase.RUNNING)
    leave_alone(run)
    move_to_another_boot(run, since_boot=10.0**9)
    workspace.write("go", "")
    assert workspace.run("resume", run.id).code == 0
    assert (run.state.phase, run.state.attempt, run.state.resumes) == (Phase.FINISHED, 1, 1)
    assert run.state.causes[0].reason == "ExitUnknown"


def test_a_run_that_was_over_before_a_reboot_can_be_resumed(workspace: Workspace) -> None:
    run = workspace.train(RUNS_UNTIL_STOPPED)
    workspace.wait_numbers("up", 1)
    preempt(run)
    move_to_another_boot(run, since_boot=10.0**9)
    workspace.write("go", "")
    assert workspace.run("resume", run.id).code == 0
    assert [event.attempt for event in run.events if isinstance(event, AttemptPlaced)] == [0, 1]


def test_a_supervisor_killed_after_a_resume_is_replaced_and_the_run_continues(workspace: Workspace) -> None:
    run = workspace.train(RUNS_UNTIL_STOPPED)
    workspace.wait_numbers("up", 1)
    workspace.run("kill", run.id)
    workspace.run("resume", "-d", run.id)
    workspace.wait_numbers("up", 2)
    run.kill_supervisor()
    workspace.write("go", "")
    assert workspace.run("supervise", run.id).code == 0
    assert run.wait_for(Phase.FINISHED).attempt == 1
    assert len(workspace.numbers("up")) == 2


def test_data_that_was_not_prepared_when_a_run_ended_is_prepared_when_it_is_resumed(workspace: Workspace) -> None:
    run = workspace.train(
        """
        data: {path: $HERE/words, prepare: "echo $$ >> $HERE/up; until [ -e $HERE/go ]; do sleep 0.05; done"}
        run: ls $DATA_DIR
    """.replace("$HERE/words", str(workspace.project / "words"))
    )
    workspace.wait_numbers("up", 1)
    workspace.run("kill", run.id)
    workspace.write("go", "")
    answer = workspace.run("resume", run.id)
    assert answer.code == 0
    assert "prepared" in answer.out
    assert len(workspace.numbers("up")) == 2
    assert (run.path / "attempts" / "0" / "prepare+1" / "log").exists()


def make_environment(workspace: Workspace) -> dict[str, str]:
    """Make a virtual environment with a script as `python`; return the variables that activate it."""
    python = workspace.project / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    (python.parent.parent / "pyvenv.cfg").touch()
    python.write_text(
        "#!/bin/sh\n[ $1 = train.py ] || exit\n[ -e $HERE/gone ] && rm -r $HERE/venv\n[ -e $HERE/pass ]\n"
    )
    python.chmod(0o755)
    return {"VIRTUAL_ENV": f"{workspace.project}/venv", "PATH": f"{python.parent}:{workspace.env['PATH']}"}


def test_a_run_without_its_python_is_not_resumed_with_another_one(workspace: Workspace) -> None:
    workspace.write_spec("run: python train.py")
    assert workspace.run("train", env=make_environment(workspace)).code == 1
    shutil.rmtree(workspace.project / "venv")
    refused = workspace.run("resume", "1")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err == (
        f"error: the Python of this run's launch is gone: {workspace.project}/venv/bin/python (the active virtual"
        " environment)\nhint: create its environment again at that path, or start a new run with `drumline train`\n"
    )
    make_environment(workspace)
    workspace.write("pass", "")
    assert workspace.run("resume", "1").code == 0


def test_a_restart_without_its_python_fails_with_its_path(workspace: Workspace) -> None:
    workspace.write("gone", "")
    workspace.write_spec("run: python train.py\nrestart: 3")
    answer = workspace.run("train", env=make_environment(workspace))
    assert answer.code == 1
    assert f"the Python of this run's launch is gone: {workspace.project}/venv/bin/python" in answer.out


def test_a_run_that_names_its_program_by_its_path_is_resumed_without_the_python_of_its_launch(
    workspace: Workspace,
) -> None:
    workspace.write("test.sh", "[ -e $HERE/pass ]\n")
    workspace.write_spec(f"run: /bin/sh {workspace.project}/test.sh")
    assert workspace.run("train", env=make_environment(workspace)).code == 1
    shutil.rmtree(workspace.project / "venv")
    workspace.write("pass", "")
    assert workspace.run("resume", "1").code == 0
