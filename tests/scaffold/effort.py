"""How often a property is tried: less by `make quick`, and at length with DRUMLINE_FUZZ=1."""

from __future__ import annotations

import os

IS_QUICK = bool(os.environ.get("DRUMLINE_TEST_QUICK"))
IS_LONG = bool(os.environ.get("DRUMLINE_FUZZ"))


def examples(usual: int) -> int:
    """Return how many examples are tried, where `usual` are in the usual run."""
    if IS_LONG:
        return max(usual, 20_000)
    return max(5, usual // 6) if IS_QUICK else usual
