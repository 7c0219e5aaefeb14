"""Checks of `drumline doctor` for a cluster, from answers of its API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from drumline.engine.doctor_checks import MISSING, NOTE, OK
from drumline.engine.kubernetes import capacity, diagnosis
from drumline.engine.kubernetes.capacity import Amount, Node
from drumline.engine.kubernetes.objects import kinds_of
from drumline.engine.kubernetes.paths import plural
from drumline.engine.kubernetes.permissions import permissions_of
from drumline.engine.kubernetes.plan_options import Cluster, Image, Volume
from drumline.plan.codec import to_options
from drumline.plan.types import Plan, Preparation, Replica, ReplicaId, Resources, Secret

GIB = 1 << 30


def demands(*resources: Resources, cluster: Cluster | None = None, env: Mapping[str, Any] | None = None) -> Plan:
    replicas = tuple(
        Replica(ReplicaId("worker", index), f"w-{index}", ("true",), env or {}, each)
        for index, each in enumerate(resources)
    )
    return Plan("1", "p", "p", "plain", "kubernetes", replicas, "all-workers", options=to_options(cluster or Cluster()))


def node(name: str, cpus: str = "4", *, labels: Mapping[str, str] | None = None, **spec: object) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": dict(labels or {})},
        "spec": spec,
        "status": {
            "allocatable": {"cpu": cpus, "memory": "8Gi"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(on: str, *cpus: str, phase: str = "Running", before: str = "0") -> dict[str, Any]:
    containers = [{"resources": {"requests": {"cpu": each, "memory": "1Gi"}}} for each in cpus]
    initial = [{"resources": {"requests": {"cpu": before}}}]
    return {
        "spec": {"nodeName": on, "containers": containers, "initContainers": initial},
        "status": {"phase": phase},
    }


@pytest.mark.parametrize(
    ("text", "verdict"),
    [("v1.35.8", OK), ("v1.29.0-gke.1", OK), ("v1.28.9+k3s1", MISSING), ("1.9", MISSING), ("", NOTE)],
)
def test_an_old_server_is_refused(text: str, verdict: str) -> None:
    found = diagnosis.check_version(text)
    assert found.verdict == verdict
    assert "1.29" in f"{found.words} {found.hint}"


def test_requests_of_other_pods_are_not_free() -> None:
    pods = [pod("a", "500m", "1"), pod("a", "250m", before="2"), pod("a", "3", phase="Succeeded"), pod("b", "4")]
    (free,) = capacity.eligible_nodes([node("a")], pods, selector={}, tolerations=())
    assert free.free.cpus == pytest.approx(4 - 1.5 - 2)
    assert free.free.memory_bytes == (8 - 3) * GIB


def test_nodes_that_cannot_run_the_pods_do_not_count() -> None:
    taint = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
    nodes = [
        node("closed", unschedulable=True),
        node("tainted", taints=[taint]),
        node("other", labels={"zone": "b"}),
        node("soft", labels={"zone": "a"}, taints=[{"key": "x", "effect": "PreferNoSchedule"}]),
        {**node("lost", labels={"zone": "a"}), "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}},
    ]

    def names(selector: Mapping[str, str], *tolerations: Mapping[str, Any]) -> list[str]:
        return [each.name for each in capacity.eligible_nodes(nodes, (), selector=selector, tolerations=tolerations)]

    assert names({"zone": "a"}) == ["soft"]
    assert names({}) == ["other", "soft"]
    assert names({}, {"key": "gpu", "operator": "Exists"}) == ["tainted", "other", "soft"]
    assert names({}, {"key": "gpu", "operator": "Equal", "value": "no"}) == ["other", "soft"]
    assert names({}, {"operator": "Exists", "effect": "NoExecute"}) == ["other", "soft"]


def nodes(*free: Amount, whole: Amount | None = None) -> list[Node]:
    return [Node(f"node{number}", whole or each, each) for number, each in enumerate(free, start=1)]


def test_a_gang_fits_if_all_its_replicas_fit() -> None:
    two = [Resources(cpus=2), Resources(cpus=1), Resources(cpus=3)]
    assert diagnosis.check_capacity(nodes(Amount(3, GIB), Amount(3, GIB)), demands(*two)).verdict == OK
    found = diagnosis.check_capacity(nodes(Amount(3, GIB), Amount(2, GIB), whole=Amount(4, GIB)), demands(*two))
    assert (found.verdict, found.words.partition(";")[0]) == (
        NOTE,
        "worker.1 cannot run now: worker.1 needs 1 cpus, 0 B",
    )
    found = diagnosis.check_capacity(nodes(Amount(8, GIB)), demands(Resources(gpus=1), Resources(gpus=1)))
    assert found.verdict == MISSING
    assert found.words == "worker.0 and 1 more cannot run on 1 empty node: worker.0 needs 0 cpus, 0 B, 1 GPUs"
    assert diagnosis.check_capacity([], demands(Resources())).verdict == MISSING


def test_a_replica_without_requests_fits_on_a_full_node() -> None:
    assert diagnosis.check_capacity(nodes(Amount(-0.5, -1)), demands(Resources())).verdict == OK


CLASSES = [
    {"metadata": {"name": "slow"}, "provisioner": "example.com/slow"},
    {
        "metadata": {"name": "usual", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "example.com/usual",
        "volumeBindingMode": "WaitForFirstConsumer",
    },
]


@pytest.mark.parametrize(
    ("volume", "verdict", "words"),
    [
        (None, OK, "class usual, the default (example.com/usual)"),
        (Volume(size_bytes=GIB), OK, "ReadWriteOnce, bound where the chief runs"),
        (Volume(size_bytes=GIB, storage_class="slow"), OK, "class slow (example.com/slow)"),
        (Volume(size_bytes=GIB, storage_class="fast"), MISSING, "there is no storage class `fast`"),
        (Volume(size_bytes=GIB, access="ReadWriteMany"), NOTE, ", ReadWriteMany"),
    ],
)
def test_a_claim_needs_a_class(volume: Volume | None, verdict: str, words: str) -> None:
    found = diagnosis.check_storage(CLASSES, volume)
    assert found.verdict == verdict
    assert words in found.words


def test_without_a_default_class_the_spec_has_to_name_one() -> None:
    assert diagnosis.check_storage(CLASSES[:1], Volume(size_bytes=GIB)).verdict == MISSING
    assert diagnosis.check_storage(CLASSES[:1], None).verdict == NOTE


def test_enforced_network_policies_are_guessed_from_pods_on_the_nodes() -> None:
    assert diagnosis.check_policies(["kube-proxy", "calico-node"], needed=True).words == (
        "probably enforced, by calico-node"
    )
    assert diagnosis.check_policies(["kube-proxy", "kube-flannel-ds"], needed=True).verdict == NOTE


def test_permissions_are_those_that_the_run_needs() -> None:
    quiet = demands(Resources(), cluster=Cluster(image=Image("x"), network_policy=False))
    resources = {right.resource for right in permissions_of("kubernetes", quiet)}
    assert {"jobs", "pods", "configmaps", "services"} <= resources
    assert not resources & {"networkpolicies", "persistentvolumeclaims", "secrets", "jobsets", "tfjobs"}
    loud = demands(Resources(), cluster=Cluster(output=Volume(size_bytes=1)), env={"TOKEN": Secret("TOKEN")})
    resources = {right.resource for right in permissions_of("jobset", loud)}
    assert {"jobsets", "networkpolicies", "persistentvolumeclaims", "secrets"} <= resources
    assert {right.verb for right in permissions_of("jobset", loud) if right.resource == "jobs"} == {"list"}


@pytest.mark.parametrize("engine", ["kubernetes", "jobset", "tfjob"])
@pytest.mark.parametrize("env", [{}, {"TOKEN": Secret("TOKEN")}])
@pytest.mark.parametrize("policy", [True, False])
@pytest.mark.parametrize("prepared", [True, False])
def test_kinds_that_are_listed_when_a_run_is_removed_are_those_that_were_permitted(
    engine: str, env: Mapping[str, Secret], *, policy: bool, prepared: bool
) -> None:
    plan = demands(Resources(), cluster=Cluster(image=Image("x"), network_policy=policy), env=env)
    helper = Preparation("prepare-data", "DATA_DIR", "/data", ("true",), {})
    plan = plan.replace(engine=engine, preparations=(helper,) if prepared else ())
    may_list = {right.resource for right in permissions_of(engine, plan) if right.verb == "list"}
    assert {plural(kind) for kind in kinds_of(plan)} <= may_list


def test_an_image_builder_is_needed_only_for_a_build(tmp_path: object) -> None:
    without_tools = {"PATH": str(tmp_path)}
    assert diagnosis.check_builder(without_tools, needed=True).verdict == MISSING
    assert diagnosis.check_builder(without_tools, needed=False).verdict == NOTE
