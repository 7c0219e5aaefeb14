"""A workspace for every test, and the proof after every test that nothing of it is left."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from drumline.engine.local.network import find_network_problem
from scaffold.workspace import WARMLY, Workspace

# No user has this number, nor any test that runs beside: the kernel counts processes by user.
STRANGER = 61_000 + os.getpid() % 4_000


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out, where all is warm, what is about cold replicas alone; the mark says why."""
    for item in items if WARMLY else ():
        if mark := item.get_closest_marker("cold"):
            item.add_marker(pytest.mark.skip(reason=mark.args[0]))


@pytest.fixture(scope="session")
def private_networks() -> None:
    """A system that allows private networks, without which nothing can be shown of them."""
    if forbidden := find_network_problem():
        pytest.skip(forbidden)


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    """A home and a project; whatever was started there has ended when the test has."""
    place = Workspace(tmp_path / "workspace")
    try:
        yield place
        place.leave()
    finally:
        place.clear()


@pytest.fixture
def stranger(tmp_path: Path) -> Iterator[Workspace]:
    """The workspace of another user, without access to those of others."""
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
    """A workspace of ours, and one of a user without rights."""
    found: Workspace = request.getfixturevalue(request.param)
    return found
