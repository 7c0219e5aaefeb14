"""`drumline doctor` on a real cluster, with the rights of an administrator and with few rights."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cluster.conftest import Kubectl

SPEC = """
project: digits
run: python3 train.py
framework: plain
roles: {worker: {replicas: 2}}
resources: {cpus: 0.01}
engine: {ENGINE: {image: python:local, OPTIONS}}
"""


def doctor(folder: Path, *words: str, kubeconfig: Path | None = None) -> tuple[int, dict[str, dict[str, Any]]]:
    env = {**os.environ, "DRUMLINE_HOME": str(folder / "home")}
    if kubeconfig:
        env["KUBECONFIG"] = str(kubeconfig)
    command = [sys.executable, "-m", "drumline", "doctor", "-o", "json", *words]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, {each["subject"]: each for each in json.loads(done.stdout)}


@pytest.mark.parametrize("engine", ["kubernetes", "jobset", "tfjob"])
def test_with_all_rights_everything_is_ok(kubectl: Kubectl, tmp_path: Path, engine: str) -> None:
    spec = SPEC.replace("ENGINE", engine).replace("OPTIONS", "output: {size: 1GiB}")
    (tmp_path / "drumline.yml").write_text(spec)
    code, found = doctor(tmp_path, "--on", engine, "-n", kubectl.namespace)
    assert code == 0, found
    needed = ("cluster", "version", "namespace", "permissions", "operator", "storage", "room", "metrics")
    assert {name: found[name]["verdict"] for name in needed} == dict.fromkeys(needed, "ok")
    assert found["network policies"]["words"]
    assert found["image builder"]["words"]


def test_missing_objects_are_reported_with_hints(tmp_path: Path) -> None:
    options = "namespace: drumline-not-there, output: {size: 1GiB, class: no-such-class}, node_selector: {no: such}"
    (tmp_path / "drumline.yml").write_text(SPEC.replace("ENGINE", "kubernetes").replace("OPTIONS", options))
    code, found = doctor(tmp_path)
    assert code == 1
    assert found["namespace"]["hint"] == "`kubectl create namespace drumline-not-there`"
    assert found["storage"]["verdict"] == "missing"
    assert found["room"]["words"] == "no node accepts these pods"


def test_a_gang_that_no_node_can_hold_is_named(kubectl: Kubectl, tmp_path: Path) -> None:
    spec = SPEC.replace("ENGINE", "kubernetes").replace("OPTIONS", "code: false").replace("0.01", "5000")
    (tmp_path / "drumline.yml").write_text(spec)
    code, found = doctor(tmp_path, "-n", kubectl.namespace)
    assert code == 1
    assert "worker.0 and 1 more" in found["room"]["words"]


def test_missing_rights_are_reported_with_a_hint_that_grants_them(kubectl: Kubectl, tmp_path: Path) -> None:
    kubectl("create", "serviceaccount", "ann")
    kubectl("create", "role", "ann", "--verb=get,list,watch", "--resource=pods,configmaps")
    kubectl("create", "rolebinding", "ann", "--role=ann", f"--serviceaccount={kubectl.namespace}:ann")
    kubectl.until_may("ann", "list", "pods")
    config = json.loads(kubectl("config", "view", "--raw", "--minify", "-o", "json"))
    config["users"] = [{"name": "ann", "user": {"token": kubectl("create", "token", "ann").strip()}}]
    config["contexts"][0]["context"]["user"] = "ann"
    (tmp_path / "ann.conf").write_text(json.dumps(config))
    code, found = doctor(tmp_path, "--on", "kubernetes", "-n", kubectl.namespace, kubeconfig=tmp_path / "ann.conf")
    assert code == 1
    missing = found["permissions"]
    assert missing["verdict"] == "missing"
    assert "create jobs" in missing["words"]
    assert "list pods" not in missing["words"]
    assert "kubectl create role drumline" in missing["hint"]
    assert {found[name]["verdict"] for name in ("namespace", "room", "network policies")} == {"note"}
    command = missing["hint"].split("`")[1].split()
    kubectl(*command[1:])
    kubectl("create", "rolebinding", "more", "--role=drumline", f"--serviceaccount={kubectl.namespace}:ann")
    kubectl.until_may("ann", "create", "jobs")
    code, found = doctor(tmp_path, "--on", "kubernetes", "-n", kubectl.namespace, kubeconfig=tmp_path / "ann.conf")
    assert found["permissions"]["verdict"] == "ok", found["permissions"]
    assert code == 0


def test_an_unreachable_cluster_is_reported_in_one_line(tmp_path: Path) -> None:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "away",
        "clusters": [{"name": "away", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "away", "user": {}}],
        "contexts": [{"name": "away", "context": {"cluster": "away", "user": "away"}}],
    }
    (tmp_path / "away.conf").write_text(json.dumps(config))
    code, found = doctor(tmp_path, "--on", "kubernetes", kubeconfig=tmp_path / "away.conf")
    assert code == 1
    assert list(found) == ["cluster"]
    assert "cannot be reached" in found["cluster"]["words"]
