"""Every test of the contract is tried at every site."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.sites import EXCEPTIONS, SITES, Site
from contract.suite import excuse, occupy


@pytest.fixture(params=SITES)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """A place to try an engine."""
    excuse(request, EXCEPTIONS.get(request.param, {}))
    # From 3.12 on Python warns of a fork beside pytest-xdist's threads; no supervisor has any.
    request.applymarker(pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning"))
    yield from occupy(SITES[request.param](tmp_path))
