"""Workspaces, as the tests of the local engine have them."""

from __future__ import annotations

import pytest

from integration.local.conftest import private_networks, stranger, workspace
from scaffold.workspace import Workspace

__all__ = ["private_networks", "stranger", "workspace"]


@pytest.fixture(autouse=True)
def scarce_cores(request: pytest.FixtureRequest) -> None:
    """Let first launches wait for their warm process, also on machines with many cores."""
    if "workspace" in request.fixturenames:
        found: Workspace = request.getfixturevalue("workspace")
        found.cores = 1
