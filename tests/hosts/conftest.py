"""Hosts with real sshd's: `make test-hosts`. The tests of a module share three hosts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hosts.host_cluster import HostCluster
from scaffold.workspace import Workspace

LONGEST = ("test_training", "test_fifty")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with the longest tests, so that short ones run last."""
    items.sort(key=lambda item: item.path.parent.name != "hosts" or item.path.stem not in LONGEST)


@pytest.fixture(scope="session", autouse=True)
def root() -> None:
    if os.geteuid() != 0:
        pytest.exit("network namespaces need root", returncode=2)


@pytest.fixture(scope="module")
def host_cluster() -> Iterator[HostCluster]:
    """Yield three hosts with a shared folder, for a module; a test that breaks one restores it."""
    with HostCluster(3, shared=True) as host_cluster:
        yield host_cluster


@pytest.fixture
def reached(host_cluster: HostCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> HostCluster:
    """Let this process reach the hosts, from a new folder and with a new drumline home."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DRUMLINE_HOME", str(tmp_path / "home"))
    for name, value in host_cluster.env.items():
        monkeypatch.setenv(name, value)
    return host_cluster


@pytest.fixture
def workspace(host_cluster: HostCluster, tmp_path: Path) -> Iterator[Workspace]:
    """Yield a home and a project that reach the hosts; no process is left on any machine after the test."""
    made = Workspace(tmp_path / "workspace")
    made.env |= host_cluster.env
    try:
        yield made
        made.leave()
        for name in host_cluster.names:
            host_cluster.wait_idle(name)
    finally:
        made.clear()
        for name in host_cluster.names:
            host_cluster.link(name, up=True)
