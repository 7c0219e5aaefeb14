"""A house for every test, and the proof after every test that nothing of it is left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.local.runs import House


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    """A home and a project; whatever was started there has ended when the test has."""
    place = House(tmp_path / "house")
    try:
        yield place
        place.leave()
    finally:
        place.clear()
