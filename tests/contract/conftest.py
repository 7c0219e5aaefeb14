"""Every test of the contract is tried at every site."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.sites import SITES, Site, wait_until


@pytest.fixture(params=SITES)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """A place to try an engine; nothing of what was started there is left when the test has ended."""
    # From 3.12 on Python warns of a fork beside pytest-xdist's threads; no supervisor has any.
    request.applymarker(pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning"))
    place = SITES[request.param](tmp_path)
    try:
        yield place
        wait_until(lambda: not place.left())
    finally:
        place.close()
