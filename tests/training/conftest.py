"""Houses in which scripts find drumline's runtime."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.local.runs import House
from training.line import ROOT


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    place = House(tmp_path / "house")
    place.env["PYTHONPATH"] = str(ROOT / "src")
    place.env["TF_CPP_MIN_LOG_LEVEL"] = "2"
    try:
        yield place
        place.leave()
    finally:
        place.clear()
