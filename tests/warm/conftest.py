"""Houses, as the tests of the local engine have them."""

from __future__ import annotations

import pytest

from integration.local.conftest import house, private_networks, stranger
from integration.local.runs import House

__all__ = ["house", "private_networks", "stranger"]


@pytest.fixture(autouse=True)
def scarce_cores(request: pytest.FixtureRequest) -> None:
    """Have first launches wait for their warm process, on a machine of any size."""
    if "house" in request.fixturenames:
        found: House = request.getfixturevalue("house")
        found.cores = 1
