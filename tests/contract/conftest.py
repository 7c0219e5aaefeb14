"""Run every test of the contract on every testbed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.suite import assert_none_left, skip_exception
from scaffold.testbeds import EXCEPTIONS, TEST_BEDS, EngineTestBed


@pytest.fixture(params=TEST_BEDS)
def testbed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EngineTestBed]:
    """Yield a testbed of an engine."""
    skip_exception(request, EXCEPTIONS.get(request.param, {}))
    # From 3.12 on Python warns of a fork beside pytest-xdist's threads; no supervisor has any.
    request.applymarker(pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning"))
    yield from assert_none_left(TEST_BEDS[request.param](tmp_path))
