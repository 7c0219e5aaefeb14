"""Libraries without what nobody here needs of them: whoever launches waits until those are loaded that read a spec."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def without(module: str) -> Iterator[None]:
    """Have what is imported here do without a module that it would use if it were there."""
    if module in sys.modules:
        yield
        return
    sys.modules[module] = None  # type: ignore[assignment]  # Python's own word for it
    try:
        yield
    finally:
        del sys.modules[module]


@contextmanager
def patterns_when_used() -> Iterator[None]:
    """Have what is imported here compile its patterns when they are used, if ever."""
    compile_now, re.compile = re.compile, _Later  # type: ignore[assignment]
    try:
        yield
    finally:
        re.compile = compile_now


class _Later:
    """A pattern that has not been used yet."""

    def __init__(self, pattern: Any, flags: int = 0) -> None:
        self._given = pattern, flags

    def __getattr__(self, name: str) -> Any:
        return getattr(re.compile(*self._given), name)
