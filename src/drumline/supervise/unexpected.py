"""Handle unexpected errors: record them, and end the run in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from drumline.engine.log import log
from drumline.words import describe_os_error, printable


def handle_unexpected(loop: asyncio.AbstractEventLoop, fail: Callable[[str], object]) -> None:
    """Log each error of a callback or a task, and call `fail` with its description.

    An error that asyncio or a library reports itself, such as of a connection that it closes, is only logged.
    """

    def handle(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        log(context["message"], error)
        if error and "handle" in context:
            fail(describe(error))

    loop.set_exception_handler(handle)


def describe(error: BaseException) -> str:
    """Return an unexpected error as one line of text."""
    words = describe_os_error(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
    return f"unexpected error in the supervisor: {printable(words)}"
