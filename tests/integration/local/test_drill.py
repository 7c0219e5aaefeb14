"""Drills of real runs: a fault is injected, and the report describes its consequences."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from drumline.run.state import Phase
from integration.local.test_network_ends import KNOCKER
from scaffold.peers import PRIVATE
from scaffold.waiting import wait_until
from scaffold.workspace import Answer, Workspace

# Takes a step every few milliseconds, saves every tenth step, and continues from the saved step.
SCRIPT = """
import itertools, os, sys, time
from pathlib import Path
saved = Path(os.environ["CHECKPOINT_DIR"], os.environ["DRUMLINE_INDEX"])
for step in itertools.count(int(saved.read_text()) + 1 if saved.exists() else 1):
    time.sleep(0.005)
    print(f"step {step} loss {1 / step:.4f}", flush=True)
    if step % 10 == 0:
        new = saved.with_suffix(".new")
        new.write_text(str(step))
        new.replace(saved)  # it may be killed at any moment
"""
GANG = "run: python steps.py\nroles: {worker: 2}\nrestart: 1\ntimeouts: {grace: 1}\n"


@pytest.fixture
def project(workspace: Workspace) -> Workspace:
    workspace.write("steps.py", SCRIPT)
    workspace.write_spec(GANG)
    return workspace


def report_of(answer: Answer) -> Any:
    return json.loads(answer.out)


def test_a_drill_of_a_spec_starts_a_run_injects_a_fault_waits_for_the_restart_and_kills_the_run(
    project: Workspace,
) -> None:
    answer = project.run("drill", "--kill", "worker.1", "--at-step", "25", "--steps-lost", "200", "-o", "json")
    report = report_of(answer)
    assert answer.code == 0, answer
    assert (report["replica"], report["harm"], report["attempt"], report["next_attempt"]) == (
        "1.worker.1",
        "kill",
        0,
        1,
    )
    assert report["step"] >= 25
    assert 0 <= report["notice_seconds"] < report["first_step_seconds"]
    assert report["teardown_seconds"] >= 0
    assert 0 <= report["steps_lost"] <= 200
    assert (report["came_back"], report["verdict"], report["passed"]) == (True, "right", True)
    assert report["cause"]["message"] == "1.worker.1: killed by signal 9 (KILL)"
    (run,) = project.runs()
    assert run.state.phase is Phase.KILLED
    assert "which was started for the drill" in answer.err


def test_an_exceeded_bound_fails_the_drill(project: Workspace) -> None:
    answer = project.run("drill", "--at-step", "5", "--within", "0.001s", "--steps-lost", "0")
    assert answer.code == 1
    assert "Exceeded:   no new step was seen within" in answer.out
    assert answer.out.endswith("Drill:      FAILED\n")


def test_a_running_run_gets_a_fault_only_if_confirmed_and_continues(project: Workspace) -> None:
    run = project.train(GANG)
    run.wait_for(Phase.RUNNING)
    refused = project.run("drill", run.id)
    assert (refused.code, "--yes" in refused.err) == (2, True)
    assert not run.state.causes
    answer = project.run("drill", f"{run.id}.worker.1", "--yes", "-o", "json")
    assert answer.code == 0, answer
    assert run.wait_for(Phase.RUNNING).attempt == 1  # a replica may take a step before another one has started
    assert project.run("drill", run.id, "--yes", "--term", "chief").code == 0  # a terminated replica has its own budget
    assert [cause.failure for cause in run.state.causes][1:] == ["preempted"]
    assert project.run("kill", run.id).code == 0


def test_a_drill_of_a_run_without_a_budget_ends_it_with_the_right_verdict(project: Workspace) -> None:
    run = project.train(GANG.replace("restart: 1", "restart: 0"))
    run.wait_for(Phase.RUNNING)
    answer = project.run("drill", run.id, "--yes", "--kill", "worker.0")
    assert answer.code == 1
    assert "First step: never: the run did not recover, it is FAILED" in answer.out
    assert "Verdict:    right: 1.worker.0: killed by signal 9 (KILL)" in answer.out
    run.wait_for(Phase.FAILED)


def test_a_spec_without_a_budget_gets_one_for_the_drill_with_a_notice(project: Workspace) -> None:
    project.write_spec(GANG.replace("restart: 1", ""))
    answer = project.run("drill", "--at-start")
    assert answer.code == 0, answer
    assert "the spec allows no restart; the drill allows one" in answer.err
    assert "First step: " in answer.out


def test_a_drill_of_a_run_without_readable_steps_reports_unknown_lost_steps(project: Workspace) -> None:
    project.write_spec('run: "sleep 1000"\nroles: {worker: 2}\nrestart: 1\ntimeouts: {grace: 1}\n')
    answer = project.run("drill", "--after", "10ms", "-o", "json")
    assert answer.code == 0, answer
    assert (report_of(answer)["first_step_seconds"], report_of(answer)["steps_lost"]) == (None, None)
    assert project.run("drill", "--after", "10ms", "--steps-lost", "5").code == 1


def test_no_fault_is_injected_into_a_run_that_ends_before_the_moment(project: Workspace) -> None:
    project.write_spec("run: echo step 1 loss 0.5\nroles: {worker: 2}\n")
    answer = project.run("drill", "--at-step", "100")
    assert answer.code == 1
    assert "was already FINISHED before the moment of the fault; no fault was injected" in answer.err


def test_an_interrupted_drill_ends_its_run_and_undoes_the_fault(project: Workspace) -> None:
    project.write_spec(f"{GANG.replace('grace: 1', 'grace: 1, progress: 1h')}")
    drill = project.command("drill", "--pause", "worker.1", "--at-step", "1")
    assert drill.stderr
    assert any("paused" in line for line in drill.stderr)
    drill.send_signal(signal.SIGINT)
    drill.communicate()
    assert drill.returncode == 130
    (run,) = project.runs()
    run.wait_for(Phase.KILLED)


@pytest.mark.usefixtures("private_networks")
def test_a_cut_network_that_is_not_noticed_is_restored(workspace: Workspace) -> None:
    workspace.write("knocker.py", KNOCKER)
    run = workspace.train(f"framework: tensorflow\nrun: python knocker.py\nroles: {{worker: 2}}\n{PRIVATE}")
    wait_until(lambda: workspace.exists("there"))
    drill = workspace.command("drill", run.id, "--yes", "--net-cut", "worker.1", "--after", "0s", "--within", "3s")
    wait_until(lambda: workspace.exists("away"))
    out, _ = drill.communicate()
    assert drill.returncode == 1
    assert "Noticed:    never" in out
    assert "wrong: no cause is named; the fault was in worker.1" in out
    (workspace.project / "there").unlink()
    wait_until(lambda: workspace.exists("there"))
    assert workspace.run("kill", run.id).code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--net-cut", "worker.1"), "only a private network can be cut"),
        (("--kill", "ps.0"), "the run has no replica ps.0"),
        (("--kill", "worker.1", "--term", "worker.0"), "more than one fault"),
        (("--at-step", "1", "--at-start"), "more than one moment"),
        (("--within", "soon"), "a time such as 30s"),
        (("7",), "there is no run 7"),
    ],
)
def test_an_impossible_drill_is_refused_before_anything_is_started(
    project: Workspace, words: tuple[str, ...], said: str
) -> None:
    answer = project.run("drill", *words)
    assert answer.code in (2, 4)
    assert said in answer.err
    assert project.runs() == []


def test_a_paused_replica_is_found_to_hang_and_the_run_restarts(project: Workspace) -> None:
    project.write_spec(GANG.replace("worker: 2", "worker: 1").replace("grace: 1", "grace: 1, progress: 1s"))
    answer = project.run("drill", "--pause", "worker.0", "--at-step", "3", "-o", "json")
    report = report_of(answer)
    assert answer.code == 0, answer
    assert (report["cause"]["replica"], report["cause"]["failure"]) == ("1.worker.0", "hang")
    assert report["notice_seconds"] > 0.5  # a second after its last sign of life, which came before the pause


def test_no_replica_is_paused_where_a_pause_is_not_noticed(project: Workspace) -> None:
    project.write_spec(GANG.replace("grace: 1", "grace: 1, progress: never"))
    answer = project.run("drill", "--pause", "worker.1")
    assert (answer.code, "this would not be noticed" in answer.err, project.runs()) == (2, True, [])


def test_a_run_that_is_over_or_has_no_supervisor_cannot_be_drilled(project: Workspace) -> None:
    run = project.train(GANG)
    run.wait_for(Phase.RUNNING)
    run.kill_supervisor()
    assert "supervisor of run 1 is gone" in project.run("drill", "1", "--yes").err
    assert project.run("kill", "1").code == 0
    wait_until(lambda: run.state.phase is Phase.KILLED)
    assert "run 1 is over: KILLED" in project.run("drill", "1", "--yes").err
