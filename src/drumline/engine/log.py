"""The supervisor's own log."""

from __future__ import annotations

import sys
import traceback
from contextlib import suppress


def log(message: str, error: BaseException | None = None) -> None:
    """Write a line into the supervisor's log, and the traceback of an error; a full disk raises nothing."""
    with suppress(OSError):
        print(message, file=sys.stderr)  # noqa: T201
        if error:
            traceback.print_exception(error)
