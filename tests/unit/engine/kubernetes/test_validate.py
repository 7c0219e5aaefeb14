"""What cannot be had in a cluster, and what is unwise there."""

from __future__ import annotations

import pytest

from drumline.engine.kubernetes.place import place
from drumline.engine.kubernetes.validate import find_problems, find_warnings
from drumline.plan.bind import bind
from unit.engine.kubernetes.cluster_objects import plan_of

SHARED = "output: {size: 1GiB, access: ReadWriteMany}"


@pytest.mark.parametrize(
    ("text", "options", "remark"),
    [
        ("roles: {worker: 2}", "", "no output volume: models and checkpoints are lost with the pods"),
        ("roles: {worker: 2}", "output: models", "only worker.0 has it"),
        ("roles: {worker: 2}\nrestart: 3", "output: models", "after a restart only worker.0 finds its checkpoints"),
        ("roles: {chief: 1, worker: 2}", "output: {size: 1GiB}", "only chief.0 has it"),
        ("data: {path: a, volume: {size: 1GiB}}", SHARED, "made empty, and nothing fills it"),
        (
            "roles: {worker: 2}\ndata: {path: a, volume: {claim: x, access: ReadWriteOnce}}",
            SHARED,
            "all pods have to be on one node",
        ),
        ("environment: [numpy]", SHARED, "`environment` is for this machine"),
        ("roles: {worker: 2}", f"{SHARED}, queue: slow", "each Job waits in the queue by itself"),
    ],
)
def test_what_is_unwise_is_said(text: str, options: str, remark: str) -> None:
    assert [each for each in find_warnings(plan_of(text, options=options)) if remark in each]


@pytest.mark.parametrize("text", ["", "roles: {worker: 4}", "roles: {chief: 1, worker: 2}\nrestart: 3"])
@pytest.mark.parametrize("engine", ["kubernetes", "jobset", "tfjob"])
def test_of_what_is_fine_nothing_is_said(text: str, engine: str) -> None:
    plan = plan_of(text, engine, options=SHARED)
    assert not list(find_warnings(plan))
    assert not list(find_problems(plan, bind(plan, place(plan))))


def test_one_replica_alone_may_have_a_volume_for_one() -> None:
    assert not list(find_warnings(plan_of("restart: 3", options="output: {size: 1GiB}")))


@pytest.mark.parametrize(
    ("engine", "text", "remark"),
    [
        ("jobset", "roles: {worker: 2}\nrestart: {crash: 1, preempted: 9}", "one number for restarts: 9"),
        ("jobset", "restart: {budget: 1, permanent: [2]}", "a JobSet starts again after any exit code"),
        ("tfjob", "restart: {budget: 1, permanent: [2]}", "a TFJob takes exit codes from 1 to 127 for permanent"),
        ("tfjob", "roles: {worker: 2, evaluator: 1}", "lists the evaluator in everyone's TF_CONFIG"),
    ],
)
def test_what_somebody_else_does_otherwise_is_said(engine: str, text: str, remark: str) -> None:
    (found,) = find_warnings(plan_of(text, engine, options=SHARED))
    assert remark in found


@pytest.mark.parametrize(
    ("text", "options", "objection"),
    [
        ("framework: torch", "", "a TFJob is for TensorFlow"),
        ("roles: {worker: {replicas: 2, first: {env: {A: 1}}}}", SHARED, "leave out `roles.worker.first`"),
        ("roles: {worker: 2}", "output: models", "add `chief: 1` to the roles"),
        ("roles: {chief: 1, worker: 2}\nsuccess: all-workers", SHARED, "over when the chief has finished"),
        ("roles: {worker: {replicas: 2, port: [1, 2]}}", SHARED, "give `roles.worker.port` as a number"),
        ('env: {TF_CONFIG: {value: "{}", override: true}}', SHARED, "writes TF_CONFIG itself"),
    ],
)
def test_what_a_tfjob_cannot_be_told_is_refused(text: str, options: str, objection: str) -> None:
    plan = plan_of(text, "tfjob", options=options)
    (found,) = find_problems(plan, bind(plan, place(plan)))
    assert objection in found


def test_worker_0_may_decide_in_a_tfjob_and_a_chief_may_have_a_volume_for_one() -> None:
    for text, options in (
        ("roles: {worker: 2}\nsuccess: worker-0", SHARED),
        ("roles: {chief: 1, worker: 2}", "output: a"),
    ):
        plan = plan_of(text, "tfjob", options=options)
        assert not list(find_problems(plan, bind(plan, place(plan))))


def test_two_volumes_at_one_path_are_refused() -> None:
    plan = plan_of("output: /here\ndata: {path: /here/, volume: a}", options=SHARED)
    (found,) = find_problems(plan, bind(plan, place(plan)))
    assert found == "two volumes would be at /here: give one of them another path"


def test_a_line_that_is_too_long_for_a_variable_is_refused() -> None:
    plan = plan_of("roles: {worker: 6000}", options=SHARED)
    (found,) = find_problems(plan, bind(plan, place(plan)))
    assert found.startswith("TF_CONFIG of worker.0 has ")


@pytest.mark.parametrize(
    ("engine", "options", "objects"),
    [("kubernetes", "", False), ("kubernetes", "jobs: indexed, ", True), ("jobset", "", True), ("tfjob", "", False)],
)
def test_whoever_has_to_be_counted_needs_the_shell_that_counts(engine: str, options: str, *, objects: bool) -> None:
    patch = "pod: {containers: [{name: replica, command: null}]}"
    plan = plan_of("roles: {worker: 3}\nsuccess: worker-0", engine=engine, options=f"{options}{patch}")
    assert any("which nobody tells their index" in each for each in find_problems(plan, ())) == objects
    alike = plan_of("roles: {worker: 3}", engine=engine, options=f"{options}{patch}")
    assert not any("which nobody tells their index" in each for each in find_problems(alike, ()))
