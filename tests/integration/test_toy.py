"""An engine of another package, installed by its entry point, works in every command: nothing in `src/` knows it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from drumline_toy import agent

from drumline.runtime.lock import is_locked
from scaffold.toys import SPEC, Project
from scaffold.waiting import wait_until


@pytest.fixture
def project(tmp_path: Path, packages: Path) -> Iterator[Project]:
    made = Project(tmp_path, packages)
    yield made
    made.open_gate()
    locks = [*made.home.glob("runs/*/supervisor.lock"), *made.home.glob(f"runs/*/toy/{agent.LOCK}")]
    wait_until(lambda: not any(map(is_locked, locks)))
    assert agent.marked(str(made.home), within=True) == []


def test_check_reports_the_problems_of_the_options_of_the_toy_engine(project: Project) -> None:
    answer = project.run("check")
    assert (answer.code, "2 workers, plain, on toy" in answer.out) == (0, True), answer
    spec = project.folder / "drumline.yml"
    spec.write_text(SPEC.replace("nice: 7", "nice: 70"))
    answer = project.run("check")
    assert (answer.code, "drumline.yml:6: engine.toy.nice" in answer.err) == (2, True), answer
    spec.write_text(SPEC.replace("nice: 7", "nice: 19"))
    assert "leaves the replicas next to nothing" in project.run("check").err


def test_render_accepts_the_flags_that_the_engine_declares(project: Project) -> None:
    plain, flagged = project.run("render"), project.run("render", "--nice", "3")
    assert (plain.code, flagged.code) == (0, 0), (plain, flagged)
    assert {each["nice"] for each in json.loads(plain.out)["replicas"]} == {7}
    assert {each["nice"] for each in json.loads(flagged.out)["replicas"]} == {3}
    assert "--nice N" in project.run("render", "--help").out
    answer = project.run("render", "--on", "local", "--nice", "3")
    assert (answer.code, "--nice is for the toy" in answer.err) == (2, True), answer


def test_train_shows_a_run_to_its_end_and_logs_show_the_same_again(project: Project) -> None:
    project.open_gate()
    answer = project.run("train", "-p", "label=all")
    assert answer.code == 0, answer
    lines = {"worker 0 of all", "worker 1 of all"}
    assert all(line in answer.out for line in lines), answer
    logs = project.run("logs", "1")
    assert all(line in logs.out for line in lines), logs
    assert logs.out.count("7") >= 2, "each replica has the priority that the spec gives"
    status = project.run("status", "1")
    assert "plain on toy" in status.out
    assert project.phase("1") == "FINISHED"
    assert "toy" in project.run("status", "-a").out
    assert project.run("rm", "1").code == 0


def test_kill_ends_all_processes(project: Project) -> None:
    run = project.begin()
    answer = project.run("kill", run)
    assert (answer.code, answer.out) == (0, f"killed run {run}; none of its processes is left\n"), answer
    assert agent.marked(str(project.home), within=True) == []
    assert project.phase(run) == "KILLED"


def test_a_run_outlives_its_supervisor_and_is_adopted(project: Project) -> None:
    run = project.begin()
    pid, lock = project.supervisor(run), project.home / "runs" / run / "supervisor.lock"
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_locked(lock) or project.supervisor(run) != pid)
    project.run("supervise", run)
    project.open_gate()
    assert project.run("wait", run).code == 0
    assert project.phase(run) == "FINISHED"
    assert project.run("logs", f"{run}.worker.0").out.count("worker 0 of default") == 1


def test_doctor_checks_the_toy_engine(project: Project) -> None:
    answer = project.run("doctor", "-o", "json")
    assert answer.code == 0, answer
    (found,) = json.loads(answer.out)
    assert (found["subject"], found["verdict"]) == ("toy", "ok")
    assert "in the toy's corner" in found["words"]


def test_the_options_of_the_toy_engine_are_in_the_schema(project: Project) -> None:
    schema = json.loads(project.run("schema").out)
    assert "By how much the replicas give way to others" in json.dumps(schema)


def test_what_the_toy_engine_does_not_support_is_reported_in_the_same_words(project: Project) -> None:
    run = project.begin()
    for words, what in (
        (("stacks", run), "stack traces are"),
        (("inspect", run, "ls"), "access to the output is"),
        (("drill", run, "--yes"), "a drill is"),
    ):
        answer = project.run(*words)
        assert (answer.code, f"{what} not supported on toy" in answer.err) == (3, True), answer


def test_a_run_of_an_engine_that_is_gone_can_be_shown_and_removed(project: Project) -> None:
    project.open_gate()
    assert project.run("train").code == 0
    del project.env["PYTHONPATH"]
    assert project.phase("1") == "FINISHED"
    assert "worker 0 of default" in project.run("logs", "1").out
    answer = project.run("resume", "1")
    assert answer.code != 0
    assert project.run("rm", "1").code == 0
    answer = project.run("check")
    assert (answer.code, "engine.toy" in answer.err) == (2, True), answer
