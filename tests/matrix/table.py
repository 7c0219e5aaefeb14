"""The page with what came of each cell."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matrix.trial import Result


def write_page(page: Path, results: Sequence[Result]) -> None:
    raise NotImplementedError
