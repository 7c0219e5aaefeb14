"""Hosts with real sshd's: `make test-hosts`. A module that is content with three shares them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hosts.host_cluster import HostCluster
from scaffold.workspace import Workspace

LONGEST = ("test_training", "test_fifty")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest, so that short tests fill in the end."""
    items.sort(key=lambda item: item.path.parent.name != "hosts" or item.path.stem not in LONGEST)


@pytest.fixture(scope="session", autouse=True)
def root() -> None:
    if os.geteuid() != 0:
        pytest.exit("hosts with addresses of their own need root", returncode=2)


@pytest.fixture(scope="module")
def host_cluster() -> Iterator[HostCluster]:
    """Three hosts that share a folder, for a whole module: whoever breaks something there mends it."""
    with HostCluster(3, shared=True) as host_cluster:
        yield host_cluster


@pytest.fixture
def reached(host_cluster: HostCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> HostCluster:
    """The same, and this process reaches them, from a folder and with a home of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DRUMLINE_HOME", str(tmp_path / "home"))
    for name, value in host_cluster.env.items():
        monkeypatch.setenv(name, value)
    return host_cluster


@pytest.fixture
def workspace(host_cluster: HostCluster, tmp_path: Path) -> Iterator[Workspace]:
    """A home and a project from which the hosts are reached; when the test has ended, nothing runs here or there."""
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
