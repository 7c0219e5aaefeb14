"""One life of a fake replica: what follows from its act and its moments, and the traces that it leaves."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from drumline.engine.fake.behavior import FakeBehavior
from drumline.plan.types import ReplicaId
from drumline.record import Record
from drumline.run.event import Exit
from drumline.run.traces import LOG, TRACE

_NEVER_STARTED = Exit(message="it was never started")


class End(Record):
    """When and how a life ends, or has ended."""

    at_seconds: float
    exit: Exit


@dataclass(slots=True)
class Life:
    """One life of a replica, as far as this engine knows and has told of it."""

    replica: ReplicaId
    attempt: int
    incarnation: int
    folder: Path
    act: FakeBehavior
    began: float
    termed: float = inf
    killed: float = inf
    ended: End | None = None  # as it was written down
    told_start: bool = False
    told_end: bool = False
    looked_at: bool = False
    measured: bool = False  # after its end

    @property
    def started(self) -> float:
        """When it starts, if nothing comes in between."""
        return self.began + self.act.starts_after_seconds

    def end(self) -> End:
        """Whatever comes first: its own end, that by TERM, or that by KILL."""
        act = self.act
        if self.ended:
            return self.ended
        if min(self.termed, self.killed) < self.started:
            return End(min(self.termed, self.killed), _NEVER_STARTED)
        ends = [End(self.killed, Exit(signal=9))]
        if act.exit_on_term is not None:
            ends.append(End(self.termed + act.after_term_seconds, act.exit_on_term))
        if act.exit is not None:
            ends.append(End(self.started + act.after_seconds, act.exit))
        return min(ends, key=lambda end: end.at_seconds)

    def moments(self) -> Iterator[float]:
        """All times at which something happens to it."""
        yield self.started
        yield from (self.started + line.after_seconds for line in self.act.lines)
        yield self.end().at_seconds

    def output(self, until: float) -> bytes:
        """What it has written by then."""
        lines = sorted(self.act.lines, key=lambda line: line.after_seconds)
        said = (f"{line.text}\n" for line in lines if self.started + line.after_seconds <= until)
        return "".join(said).encode("utf-8", "surrogateescape")

    def make_folder(self) -> None:
        """Make room for its traces; what is there of an engine that did not come to its first whole line goes."""
        for each in (self.folder.parent.parent, self.folder.parent, self.folder):
            each.mkdir(exist_ok=True, mode=0o700)
        for name in (LOG, TRACE):
            os.close(os.open(self.folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))

    def write_log(self, until: float) -> None:
        """Bring the log up to this moment; what an earlier engine wrote is there already."""
        self._append(LOG, lambda size: self.output(until)[size:])

    def note(self, data: Mapping[str, object]) -> None:
        """Add a line to the trace."""
        self._append(TRACE, lambda _: json.dumps(data).encode() + b"\n")

    def _append(self, name: str, data: Callable[[int], bytes]) -> None:
        with suppress(FileNotFoundError):  # who never began has no traces
            file = os.open(self.folder / name, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            try:
                os.write(file, data(os.fstat(file).st_size))
            finally:
                os.close(file)


def read_notes(path: Path) -> dict[str, Any]:
    """Everything that a trace says; a line that is not whole says nothing."""
    known: dict[str, Any] = {}
    with suppress(FileNotFoundError):
        for line in path.read_bytes().split(b"\n")[:-1]:
            with suppress(ValueError):
                known.update(json.loads(line))
    return known
