"""Libraries that an engine needs beside drumline's own dependencies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from drumline.errors import EngineError


@contextmanager
def needed_by(engine: str, extra: str) -> Iterator[None]:
    """Raise EngineError, with the extra to install, if a library that the block imports is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("drumline"):
            raise
        missing = f"`{engine}` needs {error.name}, which is not installed"
        raise EngineError(missing, hint=f"`pip install 'drumline[{extra}]'`") from None
