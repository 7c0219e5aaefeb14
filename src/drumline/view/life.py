"""One life of a replica, as whoever reads its traces has to know it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Life(NamedTuple):
    """Where it left its traces, and when it began and ended."""

    folder: Path
    started_at: float
    ended_at: float | None = None  # None: it runs
