"""One incarnation of a fake replica: its events, computed from its behavior and times, and its files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from math import inf
from pathlib import Path

from drumline.engine.fake.behavior import FakeBehavior
from drumline.engine.notes import End, note, read_notes
from drumline.engine.tracker import NEVER_STARTED, Tracked
from drumline.plan.codec import from_data, to_data
from drumline.run.event import Exit
from drumline.run.incarnation import Incarnation
from drumline.run.traces import LOG, TRACE
from drumline.runtime.keeper import boot_id
from drumline.runtime.private import make_folder, open_file

_NEVER = FakeBehavior(starts_after_seconds=inf)


class FakeReplica(Tracked):
    """One incarnation of a replica, as far as this session knows it."""

    def __init__(self, incarnation: Incarnation, folder: Path) -> None:
        super().__init__(incarnation, folder)
        self.behavior = _NEVER
        self.began = inf
        self.times: dict[str, float] = {}  # of the signals TERM and KILL, by their names

    @property
    def started(self) -> float:
        """Return when it starts, unless it is stopped before."""
        return self.began + self.behavior.starts_after_seconds

    def begin(self, behavior: FakeBehavior, at_seconds: float) -> None:
        """Begin, and record that; remove incomplete files of an earlier session."""
        self.behavior, self.began = behavior, at_seconds
        make_folder(self.folder)
        for name in (LOG, TRACE):
            os.close(open_file(self.folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC))
        note(self.folder, {"boot": boot_id(), "began": at_seconds, "act": to_data(behavior)})

    def resume(self, now: float) -> bool:
        """Continue from the records of an earlier session; return False if there are none."""
        known = read_notes(self.folder)
        if self.began == inf and "began" in known:
            self.behavior, self.began = from_data(FakeBehavior, known["act"]), known["began"]
            self.times = {name: known[name] for name in ("term", "kill") if name in known}
            if known["boot"] != boot_id():  # its clock has no meaning any more
                self.behavior, self.began = FakeBehavior(exit=Exit(message="the machine was restarted")), now
        return self.began < inf

    def signal(self, name: str, at_seconds: float) -> None:
        """Send `term` or `kill`, once."""
        if name not in self.times:
            self.times[name] = at_seconds
            if self.began < inf:
                note(self.folder, {name: at_seconds})

    def find_end(self) -> End:
        """Return the first of its own end, the end by TERM and the end by KILL; at infinity if there is none."""
        behavior, term, kill = self.behavior, self.times.get("term", inf), self.times.get("kill", inf)
        if min(term, kill) < self.started:
            return End(NEVER_STARTED, min(term, kill), has_started=False)
        ends = [End(Exit(signal=9), kill, has_started=True)]
        if behavior.exit_on_term is not None:
            ends.append(End(behavior.exit_on_term, term + behavior.after_term_seconds, has_started=True))
        if behavior.exit is not None:
            ends.append(End(behavior.exit, self.started + behavior.after_seconds, has_started=True))
        return min(ends, key=lambda end: end.at_seconds)

    def due_times(self) -> Iterator[float]:
        """Yield the times of all its events."""
        yield self.started
        yield from (self.started + line.after_seconds for line in self.behavior.lines)
        yield self.find_end().at_seconds

    def write_log(self, until: float) -> None:
        """Append the lines up to this time that are not in the log yet."""
        lines = sorted(self.behavior.lines, key=lambda line: line.after_seconds)
        lines_due = (f"{line.text}\n" for line in lines if self.started + line.after_seconds <= until)
        data = "".join(lines_due).encode("utf-8", "surrogateescape")
        with suppress(FileNotFoundError):  # one that never began has no log
            file = open_file(self.folder / LOG, os.O_WRONLY | os.O_APPEND)
            try:
                os.write(file, data[os.fstat(file).st_size :])
            finally:
                os.close(file)
