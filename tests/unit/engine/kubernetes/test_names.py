"""Names in a cluster: valid, short enough and unique, whatever the name of a run."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumline.engine.kubernetes import names
from drumline.engine.kubernetes.plan_options import Cluster, Volume, with_cluster
from drumline.plan.codec import to_options
from drumline.plan.types import Data, Plan, Preparation, Replica, ReplicaId, Resources
from drumline.run.incarnation import Incarnation

LABEL = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")

any_name = st.from_regex(r"\A[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?\Z")
any_run = st.sampled_from(("0", "4", "999999999", "7.2", "999999999.999999999"))
any_unique = st.sampled_from(("", "x7k2q"))
any_replica = st.builds(ReplicaId, st.sampled_from(("chief", "worker", "ps", "evaluator")), st.integers(0, 99_999))
any_helper = st.from_regex(r"\A(prepare(-[A-Za-z0-9_-]{1,64})?|build)\Z").map(lambda name: ReplicaId(name, 0))
any_incarnation = st.builds(Incarnation, any_replica, st.integers(0, 9_999), st.integers(0, 9_999))


def plan_of(name: str, run: str = "4", unique: str = "x7k2q", *, replicas: int = 2, helper: str = "") -> Plan:
    prepared = (Preparation(helper, "DATA_DIR", "data", ("true",), {}),) if helper else ()
    return Plan(
        run=run,
        project=name,
        name=name,
        framework="tensorflow",
        engine="kubernetes",
        replicas=tuple(
            Replica(ReplicaId("worker", index), "", ("true",), {}, Resources()) for index in range(replicas)
        ),
        success="all-workers",
        data=(Data("DATA_DIR_" + "A" * 60, "data"),),
        preparations=prepared,
        options=to_options(
            Cluster(unique, "me", output=Volume(size_bytes=1), data={"DATA_DIR_" + "A" * 60: Volume(size_bytes=1)})
        ),
    )


@given(any_name, any_run, any_unique, any_incarnation)
def test_every_name_is_a_label_of_at_most_63_characters(
    name: str, run: str, unique: str, incarnation: Incarnation
) -> None:
    plan = plan_of(name, run, unique)
    of_groups = [names.role_job(plan, group, incarnation.attempt) for group in ("worker-1st", "evaluator")]
    every = (
        names.base(plan),
        names.service(plan, incarnation.attempt),
        names.shared_values(plan, incarnation.attempt),
        names.job(plan, incarnation.replica, incarnation.attempt, incarnation.incarnation),
        names.code(plan, 99),
        names.secret(plan),
        *names.created_claims(plan),
        *(f"{each}-{incarnation.replica.index}" for each in of_groups),  # host names of pods
        f"{names.service(plan, incarnation.attempt)}-worker-1st-0-99999-xxxxx",  # a pod of a JobSet
        # a pod of a TFJob
        f"{names.service(plan, incarnation.attempt)}-{incarnation.replica.role}-{incarnation.replica.index}",
    )
    assert not [each for each in every if not LABEL.fullmatch(each)]


@given(any_name, any_helper, st.integers(0, 9_999))
def test_names_of_helpers_are_short_enough(name: str, helper: ReplicaId, number: int) -> None:
    assert LABEL.fullmatch(names.job(plan_of(name), helper, 0, number))
    assert LABEL.fullmatch(names.helper(helper.role))


@given(st.lists(st.tuples(any_name, any_run), min_size=2, max_size=5, unique=True), st.data())
def test_names_of_different_runs_differ(runs: list[tuple[str, str]], data: st.DataObject) -> None:
    incarnations = data.draw(st.lists(any_incarnation, min_size=1, max_size=3, unique=True))
    every = [
        names.job(plan_of(name, run, ""), incarnation.replica, incarnation.attempt, incarnation.incarnation)
        for name, run in runs
        for incarnation in incarnations
    ]
    assert len(set(every)) == len(every)


@given(any_name, st.lists(any_helper, min_size=2, max_size=5, unique=True))
def test_names_of_different_helpers_differ(name: str, helpers: list[ReplicaId]) -> None:
    plan = plan_of(name)
    assert len({names.job(plan, helper) for helper in helpers}) == len(helpers)


@pytest.mark.parametrize(
    ("name", "run", "unique", "base"),
    [
        ("digits", "4", "x7k2q", "digits-4-x7k2q"),
        ("digits", "4", "", "digits-4"),
        ("digits", "0", "x7k2q", "digits-x7k2q"),
        ("digits", "7.2", "", "digits-7--2"),
        ("My_Digits", "4", "", "my-digits-wrtimk1-4"),
        ("a" * 63, "4", "x7k2q", "aaaaaaaaaaaaaaaa-ybf9ws0-4-x7k2q"),
    ],
)
def test_names_begin_with_the_name_of_the_run(name: str, run: str, unique: str, base: str) -> None:
    assert names.base(plan_of(name, run, unique)) == base


def test_each_incarnation_has_its_own_job() -> None:
    plan, worker = plan_of("digits"), ReplicaId("worker", 1)
    assert names.job(plan, worker) == "digits-4-x7k2q-worker-1"
    assert names.job(plan, worker, 2) == "digits-4-x7k2q-worker-1-r2"
    assert names.job(plan, worker, 2, 1) == "digits-4-x7k2q-worker-1-r2-i1"


@given(any_name, any_incarnation)
def test_the_labels_of_a_pod_give_its_incarnation(name: str, incarnation: Incarnation) -> None:
    plan = plan_of(name)
    assert (
        names.incarnation_of(
            plan, {"labels": names.labels_of(plan, incarnation.replica, incarnation.attempt, incarnation.incarnation)}
        )
        == incarnation
    )


@given(any_name, st.from_regex(r"\Aprepare(-[A-Za-z0-9_-]{1,64})?\Z"))
def test_the_labels_of_a_helpers_pod_give_its_incarnation(name: str, helper: str) -> None:
    plan = plan_of(name, helper=helper)
    incarnation = Incarnation(ReplicaId(helper, 0), 0, 1)
    assert (
        names.incarnation_of(
            plan, {"labels": names.labels_of(plan, incarnation.replica, incarnation.attempt, incarnation.incarnation)}
        )
        == incarnation
    )


def test_pods_of_another_run_have_no_incarnation() -> None:
    labels = names.labels_of(plan_of("digits", "5"), ReplicaId("worker", 0), 0, 0)
    assert names.incarnation_of(plan_of("digits"), {"labels": labels}) is None
    assert names.incarnation_of(plan_of("digits"), {}) is None


def test_labels_that_the_cluster_adds_give_the_incarnation_of_a_pod_of_a_shared_template() -> None:
    plan = plan_of("digits", replicas=3)
    (group,) = names.groups(with_cluster(plan, Cluster()))
    labels = names.labels_of_group(plan, group, attempt=2)
    counted = {"labels": labels, "annotations": {"batch.kubernetes.io/job-completion-index": "2"}}
    assert names.incarnation_of(plan, counted) == Incarnation(ReplicaId("worker", 2), 2, 0)
    of_jobset = names.labels_of_group(plan, group, 2) | {"jobset.sigs.k8s.io/restart-attempt": "3"}
    assert names.incarnation_of(plan, {**counted, "labels": of_jobset}) == Incarnation(ReplicaId("worker", 2), 5, 0)
    of_tfjob = {**names.labels_of_group(plan, group, 0), "training.kubeflow.org/replica-index": "1"}
    assert names.incarnation_of(plan, {"labels": of_tfjob}) == Incarnation(ReplicaId("worker", 1), 0, 0)


@pytest.mark.parametrize(
    ("change", "split"),
    [
        ({}, True),  # its output volume is for one pod alone
        ({"options": to_options(Cluster(output=Volume("models", access="ReadWriteMany")))}, False),
        ({"options": to_options(Cluster())}, False),
        ({"options": to_options(Cluster()), "success": "worker-0"}, True),
    ],
)
def test_worker_0_has_its_own_template_if_it_alone_decides_or_writes(change: dict[str, object], *, split: bool) -> None:
    plan = plan_of("digits", replicas=3).replace(**change)
    assert [group.name for group in names.groups(plan)] == (["worker-1st", "worker"] if split else ["worker"])


def test_a_replica_that_differs_has_its_own_template() -> None:
    plan = plan_of("digits", replicas=3)
    first = plan.replicas[0].replace(env={"A": "1"})
    plan = plan.replace(replicas=(first, *plan.replicas[1:]), options=to_options(Cluster()))
    assert [(group.name, group.first_index, len(group.replicas)) for group in names.groups(plan)] == [
        ("worker-1st", 0, 1),
        ("worker", 1, 2),
    ]


@given(st.text(max_size=80))
def test_labels_have_valid_values(user: str) -> None:
    plan = plan_of("digits")
    plan = with_cluster(plan, Cluster("x7k2q", user))
    values = names.labels(plan).values()
    assert not [each for each in values if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", each)]
