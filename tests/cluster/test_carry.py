"""Volumes of an ended run are read, copied and removed, over two nodes with a real provisioner."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cluster.conftest import Kubectl
from drumline.engine.kubernetes import names
from drumline.engine.kubernetes.inspection import INSPECTS
from drumline.engine.kubernetes.manifests.volumes import claims
from drumline.engine.kubernetes.plan_options import cluster_of, with_cluster
from drumline.load.load import load
from drumline.plan.types import Plan
from drumline.store.folder import create_folder
from drumline.store.launch import write_launch
from scaffold.waiting import PATIENCE_SECONDS, wait_until

SPEC = """
project: digits
run: python3 train.py
framework: plain
roles: {worker: {replicas: 2}}
engine: {kubernetes: {image: "IMAGE", namespace: NAMESPACE, OUTPUT}}
"""
SINGLE = "output: {size: 64MiB}"
SHARED = "output: {size: 64MiB, class: shared, access: ReadWriteMany}"


class Run(NamedTuple):
    """An ended run: only its claims are left."""

    home: Path
    plan: Plan
    kubectl: Kubectl

    def drumline(
        self, *words: str, given: str | None = None, cwd: Path | None = None, env: Mapping[str, str] = {}
    ) -> tuple[int, str, str]:
        command = [sys.executable, "-m", "drumline", *words]
        env = {**os.environ, "DRUMLINE_HOME": str(self.home), **env}
        how: dict[str, Any] = {"input": given} if given is not None else {"stdin": subprocess.DEVNULL}
        done = subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, check=False, **how)
        return done.returncode, done.stdout, done.stderr

    def visitors(self) -> list[str]:
        """Return the pods that read volumes, without those that are being deleted."""
        found = self.kubectl.items("pods", INSPECTS)
        return [each["metadata"]["name"] for each in found if "deletionTimestamp" not in each["metadata"]]


def make_run(folder: Path, kubectl: Kubectl, output: str, image: str = "python:local") -> Run:
    text = SPEC.replace("NAMESPACE", kubectl.namespace).replace("OUTPUT", output).replace("IMAGE", image)
    (folder / "drumline.yml").write_text(text)
    loaded = load(str(folder / "drumline.yml"), on="kubernetes")
    home = folder / "home"
    run = create_folder(home)
    plan = loaded.plan_as(run.id)
    plan = with_cluster(plan, cluster_of(plan).replace(unique=kubectl.namespace[-5:]))
    write_launch(run, plan, spec=loaded.data, directory=folder, at=time.time())
    for claim in claims(plan):
        kubectl("create", "-f", "-", given=json.dumps(claim))
    return Run(home, plan, kubectl)


@pytest.fixture(params=[SINGLE, SHARED], ids=["once", "many"])
def run(request: pytest.FixtureRequest, tmp_path: Path, kubectl: Kubectl) -> Run:
    return make_run(tmp_path, kubectl, request.param)


def test_a_volume_is_inspected_and_copied_from_and_to(run: Run, tmp_path: Path) -> None:
    script = "pwd; echo $OUTPUT_DIR; mkdir checkpoint; echo 7 > checkpoint/step"
    code, out, err = run.drumline("inspect", "1", "sh", "-c", script)
    assert (code, out) == (0, "/drumline/output\n/drumline/output\n"), err
    assert run.drumline("inspect", "1", "cat", "/drumline/output/checkpoint/step")[1] == "7\n"
    assert run.drumline("inspect", "1", "sh", "-c", "echo no >&2; exit 3")[::2] == (3, "no\n")

    here = tmp_path / "here"
    here.mkdir()
    assert run.drumline("cp", "1:checkpoint", ".", cwd=here) == (0, "", "")
    assert (here / "checkpoint/step").read_text() == "7\n"
    assert run.drumline("cp", "1:checkpoint/step", "renamed", cwd=here) == (0, "", "")
    assert (here / "renamed").read_text() == "7\n"
    code, _, err = run.drumline("cp", "1:nothing", ".", cwd=here)
    assert (code, err.splitlines()[0]) == (4, "error: run 1 has no /drumline/output/nothing")

    (here / "model").mkdir()
    (here / "model/weights").write_bytes(os.urandom(3_000_000))
    (here / "model/run.sh").write_text("#!/bin/sh\n")
    (here / "model/run.sh").chmod(0o755)
    (here / "model/latest").symlink_to("weights")
    assert run.drumline("cp", "model", "1:", cwd=here) == (0, "", "")
    assert run.drumline("cp", "renamed", "1:model/step", cwd=here) == (0, "", "")
    assert run.drumline("cp", "1:/drumline/output/model", "back", cwd=here) == (0, "", "")
    assert (here / "back/weights").read_bytes() == (here / "model/weights").read_bytes()
    assert (here / "back/step").read_text() == "7\n"
    assert os.access(here / "back/run.sh", os.X_OK)
    assert (here / "back/latest").readlink() == Path("weights")
    assert run.visitors() == []


def test_standard_input_is_run_by_a_shell(run: Run) -> None:
    code, out, err = run.drumline("inspect", "1", given="echo one\necho two")
    assert (code, out) == (0, "one\ntwo\n"), err


def test_volumes_are_deleted_only_with_confirmation(run: Run) -> None:
    claim = names.output_claim(run.plan)
    assert claim
    assert run.drumline("inspect", "1", "true")[0] == 0
    code, _, err = run.drumline("rm", "1", "--volumes")
    assert code == 2
    assert f"run 1: the claim {claim} in {run.kubectl.namespace}, 64Mi, with all that is on it" in err
    assert [each["metadata"]["name"] for each in run.kubectl.items("pvc")] == [claim]
    code, out, err = run.drumline("rm", "1", "--volumes", "--yes")
    assert (code, out) == (0, f"deleted the claim {claim}\nremoved run 1\n"), err
    assert run.kubectl.items("pvc") == []


def test_rm_without_the_option_keeps_the_volumes_and_reports_that(tmp_path: Path, kubectl: Kubectl) -> None:
    run = make_run(tmp_path, kubectl, SHARED)
    code, out, err = run.drumline("rm", "1")
    assert (code, out) == (0, "removed run 1\n")
    assert err.startswith(f"its claim {names.output_claim(run.plan)} stays in {kubectl.namespace}")
    assert len(kubectl.items("pvc")) == 1


def holding(run: Run, claim: str, node: str | None = None) -> str:
    """Create a pod that uses the volume, as a training does."""
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "holder"},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": "replica",
                    "image": "python:local",
                    "command": ["sh", "-c", "echo held > /out/held; sleep 600"],
                    "volumeMounts": [{"name": "output", "mountPath": "/out"}],
                }
            ],
            "volumes": [{"name": "output", "persistentVolumeClaim": {"claimName": claim}}],
        },
    }
    if node:
        pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    run.kubectl("create", "-f", "-", given=json.dumps(pod))
    run.kubectl("wait", "--for=condition=Ready", "pod/holder", f"--timeout={PATIENCE_SECONDS:.0f}s")
    wait_until(lambda: run.kubectl("exec", "holder", "--", "cat", "/out/held", check=False) == "held\n")
    return "holder"


def test_a_volume_for_one_node_cannot_be_inspected_while_training_uses_it(tmp_path: Path, kubectl: Kubectl) -> None:
    run = make_run(tmp_path, kubectl, SINGLE)
    claim = names.output_claim(run.plan) or ""
    holding(run, claim)
    code, _, err = run.drumline("inspect", "1", "ls")
    assert code == 3
    assert err.startswith(f"error: the volume `{claim}` is ReadWriteOnce and used by the pod holder, on node")
    assert run.visitors() == []
    kubectl("delete", "pod", "holder", "--now")
    assert run.drumline("inspect", "1", "cat", "held")[:2] == (0, "held\n")


def test_a_shared_volume_can_be_inspected_while_another_node_writes_it(tmp_path: Path, kubectl: Kubectl) -> None:
    nodes = [each["metadata"]["name"] for each in kubectl.items("nodes")]
    assert len(nodes) > 1
    output = f"{SHARED}, node_selector: {{kubernetes.io/hostname: {nodes[1]}}}"
    run = make_run(tmp_path, kubectl, output)
    holding(run, names.output_claim(run.plan) or "", nodes[0])
    assert run.drumline("inspect", "1", "cat", "held")[:2] == (0, "held\n")


@contextmanager
def looking(run: Run) -> Iterator[subprocess.Popen[str]]:
    """Start a long command that inspects a volume; return when it runs."""
    words = [sys.executable, "-m", "drumline", "inspect", "1", "sh", "-c", "echo up; sleep 600"]
    env = {**os.environ, "DRUMLINE_HOME": str(run.home)}
    with subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as command:
        assert command.stdout
        assert command.stdout.readline() == "up\n"
        assert len(run.visitors()) == 1
        yield command


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_command_leaves_no_pod(tmp_path: Path, kubectl: Kubectl, number: int) -> None:
    run = make_run(tmp_path, kubectl, SINGLE)
    with looking(run) as command:
        command.send_signal(number)
    assert command.returncode == 130
    assert run.visitors() == []


def test_the_pod_of_a_killed_command_ends_and_is_removed_by_the_next_command(tmp_path: Path, kubectl: Kubectl) -> None:
    run = make_run(tmp_path, kubectl, SINGLE)
    with looking(run) as command:
        command.kill()
    (left,) = run.visitors()
    wait_until(lambda: kubectl("get", "pod", left, "-o", "jsonpath={.status.phase}") in ("Succeeded", "Failed"))
    assert run.drumline("inspect", "1", "true")[0] == 0
    assert run.visitors() == []


def test_a_missing_permission_to_run_commands_in_pods_is_reported(tmp_path: Path, kubectl: Kubectl) -> None:
    run = make_run(tmp_path, kubectl, SINGLE)
    rules = {"apiGroups": [""], "resources": ["pods", "persistentvolumeclaims"], "verbs": ["*"]}
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "looker"}}
    kubectl("create", "-f", "-", given=json.dumps({**role, "rules": [rules]}))
    kubectl("create", "rolebinding", "looker", "--role=looker", f"--serviceaccount={kubectl.namespace}:default")
    kubectl.until_may("default", "create", "pods")
    token = kubectl("create", "token", "default").strip()
    config = json.loads(kubectl("config", "view", "--raw", "--flatten", "--minify", "-o", "json"))
    config["users"] = [{"name": config["contexts"][0]["context"]["user"], "user": {"token": token}}]
    (tmp_path / "looker.conf").write_text(json.dumps(config))
    code, _, err = run.drumline("inspect", "1", "true", env={"KUBECONFIG": str(tmp_path / "looker.conf")})
    assert code == 3
    assert re.search(r"may not (get|create) pods/exec in the namespace", err), err
    assert run.visitors() == []


def test_a_shell_of_inspect_has_the_size_of_the_terminal_and_ends_with_exit(tmp_path: Path, kubectl: Kubectl) -> None:
    run = make_run(tmp_path, kubectl, SINGLE)
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["DRUMLINE_HOME"] = str(run.home)
        os.execv(sys.executable, [sys.executable, "-m", "drumline", "inspect", "1"])
    seen = b""

    def until(text: bytes) -> None:
        nonlocal seen
        while text not in seen:
            assert select.select([terminal], [], [], PATIENCE_SECONDS)[0], seen
            seen += os.read(terminal, 65536)

    until(b"`exit` leaves it")
    os.write(terminal, b"stty size; echo is-$((40 + 2))\r")
    until(b"is-42")
    os.write(terminal, b"exit 5\r")
    for _ in _rest(terminal):
        pass
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
    assert run.visitors() == []


def _rest(terminal: int) -> Iterator[bytes]:
    while True:
        try:
            data = os.read(terminal, 65536)
        except OSError:  # the other side is closed
            return
        if not data:
            return
        yield data


def test_an_image_without_python_can_be_copied_from(tmp_path: Path, kubectl: Kubectl) -> None:
    run = make_run(tmp_path, kubectl, SINGLE, image="busybox:local")
    (tmp_path / "note").write_text("from here")
    assert run.drumline("cp", str(tmp_path / "note"), "1:deep/note") == (0, "", "")
    assert run.drumline("cp", "1:deep", str(tmp_path / "copy")) == (0, "", "")
    assert (tmp_path / "copy/note").read_text() == "from here"


def test_inspect_of_a_run_without_a_volume_reports_that_nothing_is_left(tmp_path: Path, kubectl: Kubectl) -> None:
    run = make_run(tmp_path, kubectl, "code: false")
    code, _, err = run.drumline("inspect", "1")
    assert code == 2
    assert err.startswith("error: run 1 has no volume: its output was deleted with its pods")


def test_a_missing_image_is_reported(tmp_path: Path, kubectl: Kubectl) -> None:
    never = "pod: {containers: [{name: replica, imagePullPolicy: Never}]}"
    run = make_run(tmp_path, kubectl, f"{SINGLE}, {never}", image="none:1")
    code, _, err = run.drumline("inspect", "1", "true")
    assert code == 3
    assert "its image is not on its node" in err
    assert run.visitors() == []
