"""TFJobs of the first version of the API, in which the roles are a list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from scaffold.dialects import assert_same_plan_when_converted, plan_of, refused, warnings_of


def an_old_job(*roles: Mapping[str, Any], kind: str = "TFJob", group: str = "kubeflow.org", **spec: Any) -> str:
    whole = {
        "apiVersion": f"{group}/v1alpha1",
        "kind": kind,
        "metadata": {"name": "digits"},
        "spec": {"replicaSpecs": list(roles), **spec},
    }
    return yaml.safe_dump(whole, sort_keys=False)


def an_old_role(kind: str | None, replicas: int = 1, policy: str | None = None, **more: Any) -> dict[str, Any]:
    pod = {"containers": [{"name": "tensorflow", "image": "a", "command": ["train"]}]}
    role = {"replicas": replicas, "template": {"spec": {**pod, **({"restartPolicy": policy} if policy else {})}}}
    return {**role, **({"tfReplicaType": kind} if kind else {}), **more}


@pytest.mark.parametrize(("kind", "group"), [("TFJob", "kubeflow.org"), ("TfJob", "tensorflow.org")])
def test_the_first_version_of_the_api_is_read(kind: str, group: str) -> None:
    text = an_old_job(
        an_old_role("MASTER", policy="OnFailure"),
        an_old_role("WORKER", 2, policy="OnFailure", tfPort=3333),
        {"replicas": 2, "tfReplicaType": "PS"},
        tensorboard={"logDir": "/logs"},
        kind=kind,
        group=group,
    )
    plan = plan_of(text, "kubernetes")
    assert [str(each.id) for each in plan.replicas] == ["chief.0", "worker.0", "worker.1", "ps.0", "ps.1"]
    assert [plan.replicas[at].argv[0] for at in (0, 1, 3)] == ["train", "train", "python"]
    assert (plan.success, plan.restart.crash, plan.replicas[1].port, plan.tensorboard) == ("chief", 10, 3333, True)
    said = "\n".join(warnings_of(text))
    assert "replicaSpecs[2]: has no `template`: like the operator, drumline starts a TensorFlow server" in said
    assert "spec.tensorboard: reads the summaries in OUTPUT_DIR" in said
    assert_same_plan_when_converted(text)


def test_in_the_first_version_a_role_without_a_type_is_the_master() -> None:
    assert [str(each.id) for each in plan_of(an_old_job(an_old_role(None))).replicas] == ["chief.0"]


def test_in_the_first_version_a_worker_may_decide_the_end() -> None:
    policy = {"chief": {"replicaName": "WORKER", "replicaIndex": 0}}
    text = an_old_job(an_old_role("WORKER", 2), an_old_role("PS"), terminationPolicy=policy)
    assert plan_of(text).success == "worker-0"


def test_parameter_servers_are_refused_if_no_role_has_an_image() -> None:
    (said,) = refused(an_old_job({"tfReplicaType": "PS"}))
    assert "replicaSpecs[0]: has no `template`, and no other role has an image" in said
    assert plan_of(an_old_job(an_old_role("MASTER"), {"tfReplicaType": "PS"}, tfImage="b"), "kubernetes").options
