"""Warm processes: processes that have imported a framework, from which replicas are forked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from drumline.record import Record


class WarmProcess(Record):
    """A warm process: its interpreter, what it has imported, since when, and for how many replicas."""

    key: str
    pid: int
    framework: str
    modules: tuple[str, ...]  # in addition to the framework
    python: str
    began: float  # seconds since 1970
    replicas: int  # that were forked from it
    runs: int  # that use it now
    keep_seconds: float
    unfit: str  # why no replica is forked from it
    memory_bytes: int | None
    ready: bool = True  # it has imported all


class WarmPool(Protocol):
    """The warm processes that an engine keeps for a user."""

    def processes(self) -> Sequence[WarmProcess]:
        """Return all, including those that are starting."""
        ...

    def stop(self, keys: Sequence[str]) -> int:
        """End these, or all, and return how many there were; replicas continue."""
        ...
