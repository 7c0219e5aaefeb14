"""A real Kubernetes, named by KUBECONFIG: `make test-cluster` brings one up, or takes the one that is named."""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from cluster.breaker import Breaker
from integration.local.runs import House

if TYPE_CHECKING:
    from cluster.site import Ground


class Kubectl(NamedTuple):
    """kubectl, in a namespace."""

    namespace: str
    program: tuple[str, ...] = ("kubectl",)

    def __call__(self, *words: str, given: str | None = None, check: bool = True) -> str:
        """What it prints; that it fails is an error that says why, unless that is allowed."""
        command = (*self.program, "-n", self.namespace, *words)
        done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
        if check and done.returncode:
            raise AssertionError(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def items(self, kinds: str, selector: str = "") -> list[dict[str, Any]]:
        """The objects of these kinds."""
        chosen = ("-l", selector) if selector else ()
        found: list[dict[str, Any]] = json.loads(self("get", kinds, *chosen, "-o", "json"))["items"]
        return found


@pytest.fixture(scope="session", autouse=True)
def cluster() -> str:
    """The kubeconfig's path."""
    named = os.environ.get("KUBECONFIG")
    if not named:
        pytest.exit("no cluster is named by KUBECONFIG; `make test-cluster` brings one up", returncode=2)
    return named


@pytest.fixture
def kubectl(cluster: str) -> Iterator[Kubectl]:
    """kubectl in a namespace of the test's own, which goes with it."""
    talk = Kubectl(f"drumline-{uuid.uuid4().hex[:8]}")
    talk("create", "namespace", talk.namespace)
    yield talk
    talk("delete", "namespace", talk.namespace, "--wait=false")


@pytest.fixture
def breaker(cluster: str) -> Iterator[Breaker]:
    """A line to the cluster on which things go wrong."""
    del cluster
    made = Breaker()
    yield made
    made.close()


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    """A home and a project; whatever was started there has ended when the test has."""
    made = House(tmp_path / "house")
    try:
        yield made
        made.leave()
    finally:
        made.clear()


@pytest.fixture
def namespace(kubectl: Kubectl) -> str:
    """A namespace of the test's own."""
    return kubectl.namespace


@pytest.fixture(scope="module")
def ground(cluster: str) -> Iterator[Ground]:
    """A namespace for all tests of a module, with gates that they can open."""
    from cluster.site import Ground  # noqa: PLC0415 - it knows this module

    kubectl = Kubectl(f"contract-{uuid.uuid4().hex[:8]}")
    kubectl("create", "namespace", kubectl.namespace)
    yield Ground(kubectl)
    kubectl("delete", "namespace", kubectl.namespace, "--wait=false")
