"""drumline in a pod of the cluster itself, with only the pod's service account."""

from __future__ import annotations

import json
import os
import sysconfig
from pathlib import Path

import pytest

from cluster.conftest import Kubectl
from scaffold.waiting import wait_until

IMAGE = "python:local"
SOURCE = Path(__file__).parents[2] / "src"
LONG_SECONDS = 900.0
SPEC = """
project: inside
framework: plain
run: python3 train.py
roles: {worker: 2}
engine: {kubernetes: {image: IMAGE}}
"""
TRAIN = "import os; print('worker', os.environ['DRUMLINE_INDEX'], 'trains')"
SCRIPT = """set -e
mkdir /tmp/project && cd /tmp/project
echo "$SPEC" > drumline.yml
echo "$TRAIN" > train.py
python3 -m drumline doctor --on kubernetes
exec python3 -m drumline train --on kubernetes
"""


def test_a_run_is_launched_by_a_pod_in_its_own_namespace(kubectl: Kubectl) -> None:
    if "DRUMLINE_CLUSTER" not in os.environ:
        pytest.skip("the nodes of another cluster do not have drumline's folder")
    kubectl("create", "rolebinding", "admin", "--clusterrole=admin", f"--serviceaccount={kubectl.namespace}:default")
    kubectl.until_may("default", "create", "jobs")
    here = {"source": SOURCE, "packages": Path(sysconfig.get_path("purelib"))}
    variables = {
        "SPEC": SPEC.replace("IMAGE", IMAGE),
        "TRAIN": TRAIN,
        "DRUMLINE_HOME": "/tmp/home",
        "PYTHONPATH": ":".join(f"/{name}" for name in here),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    container = {
        "name": "launcher",
        "image": IMAGE,
        "command": ["sh", "-c", SCRIPT],
        "env": [{"name": name, "value": value} for name, value in variables.items()],
        "volumeMounts": [{"name": name, "mountPath": f"/{name}", "readOnly": True} for name in here],
    }
    volumes = [{"name": name, "hostPath": {"path": str(path)}} for name, path in here.items()]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "launcher"},
        "spec": {"restartPolicy": "Never", "containers": [container], "volumes": volumes},
    }
    kubectl("create", "-f", "-", given=json.dumps(pod))

    def phase() -> str:
        found = kubectl("get", "pod", "launcher", "-o", "jsonpath={.status.phase}")
        return found if found in ("Succeeded", "Failed") else ""

    try:
        ended = wait_until(phase, LONG_SECONDS)
    except AssertionError as error:
        there = kubectl("get", "pods", "-o", "wide") + kubectl("logs", "launcher", check=False)
        raise AssertionError(f"{error}\n{there}") from None
    assert ended == "Succeeded", kubectl("logs", "launcher")
    said = kubectl.until_said(lambda said: "--> FINISHED" in said, "launcher")
    for index in (0, 1):
        assert f"worker {index} trains" in said
    wait_until(lambda: [each["metadata"]["name"] for each in kubectl.items("pods")] == ["launcher"])
