"""Warm processes: processes that have imported a framework, from which replicas are forked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from drumline.record import Record


class WarmProcess(Record):
    """The state of a warm process."""

    key: str
    pid: int
    framework: str
    modules: tuple[str, ...]  # in addition to the framework
    python: str
    began: float  # seconds since 1970
    replicas: int  # the number of replicas that were forked from it
    runs: int  # the number of runs that use it now
    keep_seconds: float
    unfit: str  # why no replica is forked from it; "" if replicas can be
    memory_bytes: int | None
    ready: bool = True  # it has imported the framework and all modules


class WarmPool(Protocol):
    """The warm processes that an engine keeps for a user."""

    def processes(self) -> Sequence[WarmProcess]:
        """Return all warm processes, including those that are starting."""
        ...

    def stop(self, keys: Sequence[str]) -> int:
        """End the warm processes with these keys, or all, and return their number; replicas continue."""
        ...
