"""A real Kubernetes, selected by KUBECONFIG; without it, `make test-cluster` starts one."""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from cluster.breaker import Breaker
from scaffold.waiting import PATIENCE_SECONDS, wait_until
from scaffold.workspace import Workspace

if TYPE_CHECKING:
    from cluster.testbed import SharedNamespace


# On a busy machine, a request may not reach the server within ten seconds: it can be sent again.
UNSENT = "TLS handshake timeout"
ATTEMPTS = 5


class Kubectl(NamedTuple):
    """kubectl, in a namespace."""

    namespace: str
    program: tuple[str, ...] = ("kubectl",)

    def __call__(self, *words: str, given: str | None = None, check: bool = True) -> str:
        """Return what it prints; raise AssertionError if it fails and `check` is set."""
        command = (*self.program, "-n", self.namespace, *words)
        for _ in range(ATTEMPTS):
            done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
            if not (done.returncode and UNSENT in done.stderr):
                break
        if check and done.returncode:
            raise AssertionError(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def items(self, kinds: str, selector: str = "") -> list[dict[str, Any]]:
        """Return the objects of these kinds."""
        chosen = ("-l", selector) if selector else ()
        found: list[dict[str, Any]] = json.loads(self("get", kinds, *chosen, "-o", "json"))["items"]
        return found

    def make_namespace(self) -> None:
        """Create it, and wait for the objects that controllers add: pods need the service account."""
        self("create", "namespace", self.namespace)
        theirs = ("serviceaccount/default", "configmap/kube-root-ca.crt")
        for each in theirs:  # one by one: kubectl cannot wait for two missing objects
            self("wait", each, "--for=create", f"--timeout={PATIENCE_SECONDS:.0f}s")

    def until_said(self, is_all: Callable[[str], bool], *words: str) -> str:
        """Wait until a log is as expected, and return it: its end is written a moment after the container's end."""
        said = ""

        def look() -> bool:
            nonlocal said
            said = self("logs", *words, check=False)
            return is_all(said)

        try:
            wait_until(look)
        except AssertionError:
            raise AssertionError(f"kubectl logs {' '.join(words)}:\n{said}") from None
        return said

    def make_quota(self, name: str, hard: str) -> None:
        """Create a quota, and wait until it is counted: before, the server admits no pod."""
        self("create", "quota", name, f"--hard={hard}")
        resource, _, amount = hard.partition("=")
        counted = f"--for=jsonpath={{.status.hard.{resource}}}={amount}"
        self("wait", f"quota/{name}", counted, f"--timeout={PATIENCE_SECONDS:.0f}s")

    def until_may(self, account: str, verb: str, resource: str) -> None:
        """Wait until an account has a permission, which takes effect a moment after the role is created."""
        account = f"--as=system:serviceaccount:{self.namespace}:{account}"
        wait_until(lambda: self("auth", "can-i", verb, resource, account, check=False).strip() == "yes")


@pytest.fixture(scope="session", autouse=True)
def cluster() -> str:
    """Return the kubeconfig's path."""
    named = os.environ.get("KUBECONFIG")
    if not named:
        pytest.exit("KUBECONFIG is not set; `make test-cluster` starts a cluster", returncode=2)
    return named


@pytest.fixture
def kubectl(cluster: str) -> Iterator[Kubectl]:
    """Yield kubectl in a new namespace, which is deleted after the test."""
    talk = Kubectl(f"drumline-{uuid.uuid4().hex[:8]}")
    talk.make_namespace()
    yield talk
    talk("delete", "namespace", talk.namespace, "--wait=false")


@pytest.fixture
def breaker(cluster: str) -> Iterator[Breaker]:
    """Yield a proxy to the cluster that injects faults."""
    del cluster
    made = Breaker()
    yield made
    made.close()


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    """Yield a home and a project; no process of them is left after the test."""
    made = Workspace(tmp_path / "workspace")
    try:
        yield made
        made.leave()
    finally:
        made.clear()


@pytest.fixture
def namespace(kubectl: Kubectl) -> str:
    """Return the namespace of the test."""
    return kubectl.namespace


@pytest.fixture(scope="session")
def shared_namespace(cluster: str) -> Iterator[SharedNamespace]:
    """Yield a namespace for all tests that share one, with gates that they can open."""
    from cluster.testbed import SharedNamespace  # noqa: PLC0415 - it imports this module

    kubectl = Kubectl(f"contract-{uuid.uuid4().hex[:8]}")
    kubectl.make_namespace()
    shared = SharedNamespace(kubectl)
    yield shared
    shared.close()
    kubectl("delete", "namespace", kubectl.namespace, "--wait=false")
