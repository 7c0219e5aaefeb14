"""A helper on its hosts: a part of it on each, and what each is told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from drumline.engine.agent.launches import life_to_data
from drumline.engine.incarnation import Incarnation
from drumline.engine.notes import End
from drumline.run.event import Exit
from drumline.run.traces import LOG


class Part:
    """A helper on one host: its log as it is there, and its end."""

    def __init__(self, folder: Path, host: str) -> None:
        self.host = host
        self.file = folder / f"{LOG}.{host.replace('/', '_')}"
        self.kill_at: float | None = None
        self.exit: Exit | None = None
        self.begins = False  # all that it needs is there
        self.is_late = False  # it came when all others were done, whose end was told

    @property
    def offset(self) -> int:
        """How much of its log is here."""
        with suppress(OSError):
            return self.file.stat().st_size
        return 0


class Helper:
    """A life of a helper, on all its hosts."""

    def __init__(self, life: Incarnation, folder: Path, hosts: Sequence[str]) -> None:
        self.life = life
        self.folder = folder
        self.plans: dict[str, str] = {}  # of each host, as JSON
        self.parts = {host: Part(folder, host) for host in hosts}
        self.has_started = False
        self.end: End | None = None

    @property
    def goes_on(self) -> bool:
        """Whether anybody is at work, or about to be, as far as anybody knows."""
        return self.end is None or any(part.is_late and part.exit is None for part in self.parts.values())

    def is_done_on(self, host: str) -> bool:
        """Whether all is well on this host; on those that were there in time, it is once the end was."""
        part = self.parts.get(host)
        if part is None or self.end is None or not self.end.exit.ok:
            return False
        return not part.is_late or bool(part.exit and part.exit.ok)

    def waits_on(self, host: str) -> bool:
        """Whether somebody is at work on this host, or about to be."""
        part = self.parts.get(host)
        return part is not None and part.exit is None and (self.end is None or part.is_late)

    def orders(self, host: str, now: float) -> Iterator[dict[str, Any]]:
        """What a host is to be told, as often as it answers anew."""
        part = self.parts.get(host)
        if part is None or not self.waits_on(host) or not part.begins:
            return
        name, offsets = str(self.life.replica), {life_to_data(self.life): part.offset}
        if part.kill_at is None:
            about = {"helper": name, "incarnation": self.life.incarnation, "attempt": 0}
            yield {"do": "prepare", **about, "plan": self.plans[host], "offsets": offsets}
        else:
            lives = [life_to_data(self.life)]
            yield {
                "do": "stop",
                "lives": lives,
                "attempt": 0,
                "grace": max(0.0, part.kill_at - now),
                "offsets": offsets,
            }
