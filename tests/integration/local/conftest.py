"""A workspace for every test, and a check after every test that no process of it is left."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from drumline.engine.local.network import find_network_problem
from scaffold.workspace import WARMLY, Workspace

# A uid of no user and of no concurrent test: the kernel counts processes by user.
STRANGER = 61_000 + os.getpid() % 4_000


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """If all replicas are warm, skip tests marked `cold`, which are about cold replicas; the mark has the reason."""
    for item in items if WARMLY else ():
        if mark := item.get_closest_marker("cold"):
            item.add_marker(pytest.mark.skip(reason=mark.args[0]))


@pytest.fixture(scope="session")
def private_networks() -> None:
    """Skip the test if the system does not allow private networks."""
    if forbidden := find_network_problem():
        pytest.skip(forbidden)


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    """Yield a home and a project; no process of them is left after the test."""
    place = Workspace(tmp_path / "workspace")
    try:
        yield place
        place.leave()
    finally:
        place.clear()


@pytest.fixture
def stranger(tmp_path: Path) -> Iterator[Workspace]:
    """Yield the workspace of another user, without access to other workspaces."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    with TemporaryDirectory(prefix="stranger-") as folder:
        os.chown(folder, STRANGER, STRANGER)
        place = Workspace(Path(folder) / "workspace", owner=STRANGER)
        if place.run("--version").code != 0 or (WARMLY and not place.may_run_python()):
            pytest.skip("this Python is for its owner alone")
        try:
            yield place
            place.leave()
        finally:
            place.clear()


@pytest.fixture(params=["workspace", "stranger"])
def each_user(request: pytest.FixtureRequest) -> Workspace:
    """Yield the workspace of the current user, then that of a user without rights."""
    found: Workspace = request.getfixturevalue(request.param)
    return found
