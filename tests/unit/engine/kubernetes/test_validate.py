"""Problems and warnings of plans for clusters."""

from __future__ import annotations

import pytest

from drumline.engine.kubernetes.place import place
from drumline.engine.kubernetes.validate import find_problems, find_warnings
from drumline.plan.bind import bind
from unit.engine.kubernetes.cluster_objects import plan_of

SHARED = "output: {size: 1GiB, access: ReadWriteMany}"


@pytest.mark.parametrize(
    ("text", "options", "warning"),
    [
        ("roles: {worker: 2}", "", "no output volume: models and checkpoints are lost with the pods"),
        ("roles: {worker: 2}", "output: models", "only worker.0 mounts it"),
        ("roles: {worker: 2}\nrestart: 3", "output: models", "after a restart only worker.0 finds its checkpoints"),
        ("roles: {chief: 1, worker: 2}", "output: {size: 1GiB}", "only chief.0 mounts it"),
        ("data: {path: a, volume: {size: 1GiB}}", SHARED, "created empty, and nothing fills it"),
        (
            "roles: {worker: 2}\ndata: {path: a, volume: {claim: x, access: ReadWriteOnce}}",
            SHARED,
            "only pods on one node can mount it",
        ),
        ("environment: [numpy]", SHARED, "`environment` does not apply to pods"),
        ("roles: {worker: 2}", f"{SHARED}, queue: slow", "each Job waits in the queue separately"),
    ],
)
def test_an_unwise_plan_has_warnings(text: str, options: str, warning: str) -> None:
    assert [each for each in find_warnings(plan_of(text, options=options)) if warning in each]


@pytest.mark.parametrize("text", ["", "roles: {worker: 4}", "roles: {chief: 1, worker: 2}\nrestart: 3"])
@pytest.mark.parametrize("engine", ["kubernetes", "jobset", "tfjob"])
def test_a_valid_plan_has_no_problems_or_warnings(text: str, engine: str) -> None:
    plan = plan_of(text, engine, options=SHARED)
    assert not list(find_warnings(plan))
    assert not list(find_problems(plan, bind(plan, place(plan))))


def test_a_single_replica_may_have_a_volume_for_one_pod() -> None:
    assert not list(find_warnings(plan_of("restart: 3", options="output: {size: 1GiB}")))


@pytest.mark.parametrize(
    ("engine", "text", "warning"),
    [
        ("jobset", "roles: {worker: 2}\nrestart: {crash: 1, preempted: 9}", "all classes of failure: 9"),
        ("jobset", "restart: {budget: 1, permanent: [2]}", "a JobSet restarts after any exit code"),
        ("tfjob", "restart: {budget: 1, permanent: [2]}", "the exit codes 1 to 127 as permanent"),
        ("tfjob", "roles: {worker: 2, evaluator: 1}", "lists the evaluator in the TF_CONFIG of every replica"),
    ],
)
def test_differences_of_an_operator_are_warnings(engine: str, text: str, warning: str) -> None:
    (found,) = find_warnings(plan_of(text, engine, options=SHARED))
    assert warning in found


@pytest.mark.parametrize(
    ("text", "options", "problem"),
    [
        ("framework: torch", "", "a TFJob is for TensorFlow"),
        ("roles: {worker: {replicas: 2, first: {env: {A: 1}}}}", SHARED, "remove `roles.worker.first`"),
        ("roles: {worker: 2}", "output: models", "add `chief: 1` to the roles"),
        ("roles: {chief: 1, worker: 2}\nsuccess: all-workers", SHARED, "ends when the chief has finished"),
        ("roles: {worker: {replicas: 2, port: [1, 2]}}", SHARED, "set `roles.worker.port` to a number"),
        ('env: {TF_CONFIG: {value: "{}", override: true}}', SHARED, "writes TF_CONFIG itself"),
    ],
)
def test_unsupported_settings_of_a_tfjob_are_problems(text: str, options: str, problem: str) -> None:
    plan = plan_of(text, "tfjob", options=options)
    (found,) = find_problems(plan, bind(plan, place(plan)))
    assert problem in found


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
    assert found == "two volumes would be mounted at /here: change the path of one"


def test_a_cluster_too_large_for_a_variable_is_a_problem() -> None:
    plan = plan_of("roles: {worker: 6000}", options=SHARED)
    (found,) = find_problems(plan, bind(plan, place(plan)))
    assert found.startswith("TF_CONFIG of worker.0 has ")


@pytest.mark.parametrize(
    ("engine", "options", "objects"),
    [("kubernetes", "", False), ("kubernetes", "jobs: indexed, ", True), ("jobset", "", True), ("tfjob", "", False)],
)
def test_replicas_that_share_a_template_need_the_shell_that_computes_their_index(
    engine: str, options: str, *, objects: bool
) -> None:
    patch = "pod: {containers: [{name: replica, command: null}]}"
    plan = plan_of("roles: {worker: 3}\nsuccess: worker-0", engine=engine, options=f"{options}{patch}")
    assert any("without their index" in each for each in find_problems(plan, ())) == objects
    alike = plan_of("roles: {worker: 3}", engine=engine, options=f"{options}{patch}")
    assert not any("without their index" in each for each in find_problems(alike, ()))
