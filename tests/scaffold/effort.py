"""The number of examples of a property: fewer in `make quick`, many with DRUMLINE_FUZZ=1."""

from __future__ import annotations

import os

IS_QUICK = bool(os.environ.get("DRUMLINE_TEST_QUICK"))
IS_LONG = bool(os.environ.get("DRUMLINE_FUZZ"))


def examples(usual: int) -> int:
    """Return the number of examples; `usual` is that of `make test`."""
    if IS_LONG:
        return max(usual, 20_000)
    return max(5, usual // 6) if IS_QUICK else usual
