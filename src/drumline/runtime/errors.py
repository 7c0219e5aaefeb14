"""An uncaught exception as data: its type, message, traceback and time."""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from contextlib import suppress
from types import TracebackType
from typing import NamedTuple

from drumline.runtime import TRACE_DIR
from drumline.runtime.private import read_regular, write_file

ERROR = "error"
_LONGEST = 64 * 1024  # characters of a traceback; the end is kept
_LATEST = 1e11  # a later time is invalid

_installed = False


class Error(NamedTuple):
    """The exception that ended a script, and its time (UTC, seconds)."""

    type: str
    message: str
    traceback: str
    at_seconds: float


def read_error(path: str | os.PathLike[str]) -> Error | None:
    """Read a recorded exception; None if there is none, or the file is not valid."""
    try:
        found = json.loads(read_regular(path, 16 * _LONGEST))
        error = Error(found["type"], found["message"], found["traceback"], float(found["at"]))
    except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None
    return error if all(isinstance(text, str) for text in error[:3]) and abs(error.at_seconds) < _LATEST else None


def install() -> None:
    """Install an exception hook that records an exception and then prints it; idempotent."""
    global _installed  # noqa: PLW0603
    if _installed:
        return
    _installed = True
    show = sys.excepthook

    def record_and_show(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
        with suppress(Exception):  # a failure to record must not hide the exception
            record(kind, error, where)
        show(kind, error, where)

    sys.excepthook = record_and_show


def record(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
    """Write the exception into this incarnation's trace folder, if there is one; ignore KeyboardInterrupt."""
    folder = os.environ.get(TRACE_DIR)
    if not folder or issubclass(kind, KeyboardInterrupt):
        return
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    data = {
        "v": 1,
        "type": name,
        "message": str(error)[-_LONGEST:],
        "traceback": "".join(traceback.format_exception(kind, error, where))[-_LONGEST:],
        "at": time.time(),
    }
    path = os.path.join(folder, ERROR)
    write_file(path, json.dumps(data).encode("utf-8", "backslashreplace"))
