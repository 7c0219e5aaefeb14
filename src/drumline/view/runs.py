"""Runs, the newest first: a row for each, from the index where it holds and from the folder where it does not.

Whoever only lists finished runs loads nothing of the machine that they went through: `status` starts fast.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING

from drumline.errors import DrumlineError, NotFoundError
from drumline.record import Record
from drumline.store.clock import Moment
from drumline.store.home import JOURNAL, LOCK, RUNS, run_ids
from drumline.store.index import Index, Summary, UnusableIndexError, spell_directory, stamp_of, use_index

if TYPE_CHECKING:
    from pathlib import Path

    from drumline.run.event import StepsStalled
    from drumline.store.reach import Reach


class RunRow(Record):
    """One run as it stands."""

    summary: Summary
    duration_seconds: float | None  # so far, if it goes on
    supervisor_gone: bool
    stalled: StepsStalled | None = None  # it takes no steps; `seconds` is up to now
    reach: Reach | None = None  # of a run that goes on and whose supervisor lives elsewhere: whether that answers

    @property
    def unreachable(self) -> str:
        """Why the supervisor cannot be asked how the run stands; empty if it can be, or if it is gone."""
        return self.reach.problem if self.reach and not self.supervisor_gone else ""


class Listing(Record):
    """Runs, whether there are older ones, and what is wrong with those that cannot be read."""

    runs: tuple[RunRow, ...]
    has_more: bool
    problems: tuple[str, ...]


def recent_runs(home: str | Path, now: Moment, *, directory: str | None = None, limit: int | None = None) -> Listing:
    """The last runs, or the last of one project; the newest first."""
    ids = run_ids(home)
    if not ids:
        return Listing((), has_more=False, problems=())
    reader = _Reader(home, now, spell_directory(directory) if directory else None)
    most = None if limit is None else limit + 1
    try:
        rows = use_index(home, lambda index: reader.read_index(index, ids, most))
    except UnusableIndexError:
        rows = reader.read_folders(ids)
    return Listing(tuple(rows[:limit]), limit is not None and len(rows) > limit, tuple(reader.problems.values()))


def make_row(summary: Summary, now: Moment, *, supervised: bool, reach: Reach | None = None) -> RunRow:
    """A run as it stands now."""
    duration = summary.duration_seconds
    if not summary.is_final and summary.started_at is not None:
        started = Moment(summary.started_at, summary.started_since_boot or 0.0, summary.started_boot or "")
        duration = now.seconds_since(started)
    stalled = _stall(summary, now.at) if summary.stalled else None
    gone = not (summary.is_final or supervised)
    return RunRow(summary, duration, supervisor_gone=gone, stalled=stalled, reach=None if summary.is_final else reach)


def _stall(summary: Summary, now: float) -> StepsStalled | None:
    import json  # noqa: PLC0415 - few runs are stalled

    from drumline.run.codec import event_from_data  # noqa: PLC0415
    from drumline.run.event import StepsStalled  # noqa: PLC0415

    event = event_from_data(json.loads(summary.stalled))
    if not isinstance(event, StepsStalled) or summary.stalled_at is None:
        return None
    return event.replace(seconds=max(event.seconds, now - summary.stalled_at))


class _Reader:
    """Reads rows of one project, or of all; remembers which it had to read from their folders."""

    def __init__(self, home: str | Path, now: Moment, directory: str | None) -> None:
        self._runs = f"{home}/{RUNS}"
        self._now = now
        self._directory = directory
        self._fresh: dict[str, Summary] = {}
        self.problems: dict[str, str] = {}

    def read_index(self, index: Index, ids: set[str], most: int | None) -> list[RunRow]:
        """Take what the index has; what it lacks, or has of another journal, is read anew and put right there."""
        known = index.ids()
        missing = self.read_folders(ids - known)
        there = known & ids  # and not what somebody puts into the index while we look
        kept = (summary for summary in index.rows(self._directory) if summary.id in there)
        checked = (row for summary in kept if (row := self._check(summary)) is not None)
        rows = list(islice(merge(missing, checked, key=_number, reverse=True), most))
        if self._fresh:
            index.put(self._fresh.values())
        if known - ids:
            index.forget(known - ids)
        return rows

    def read_folders(self, ids: Iterable[str]) -> list[RunRow]:
        """Read these runs from their folders, the newest first."""
        newest_first = sorted(ids, key=int, reverse=True)
        return [row for run in newest_first if (row := self._read(run)) is not None]

    def _check(self, summary: Summary) -> RunRow | None:
        # The lock first: a run that ends after this look is seen as over, never as left alone.
        try:
            supervised = summary.is_final or self._is_supervised(summary.id)
        except OSError:  # damage, of which the next line tells
            return self._read(summary.id)
        if stamp_of(f"{self._runs}/{summary.id}/{JOURNAL}") != summary.stamp:
            return self._read(summary.id)
        return self._row(summary, supervised=supervised)

    def _read(self, run: str) -> RunRow | None:
        from pathlib import Path  # noqa: PLC0415

        from drumline.store.folder import RunFolder  # noqa: PLC0415
        from drumline.store.summary import summarise  # noqa: PLC0415

        try:
            supervised = self._is_supervised(run)
            summary = summarise(RunFolder(Path(self._runs, run)))
        except NotFoundError:
            return None  # it was never started, or has just been removed
        except DrumlineError as error:
            self.problems[run] = error.message
            return None
        except OSError as error:
            self.problems[run] = f"run {run} cannot be read: {error.strerror}"
            return None
        self._fresh[run] = summary
        if self._directory not in (None, summary.directory):
            return None
        return self._row(summary, supervised=supervised)

    def _row(self, summary: Summary, *, supervised: bool) -> RunRow:
        if summary.is_final:
            return make_row(summary, self._now, supervised=supervised)
        from drumline.store.reach import read_reach  # noqa: PLC0415 - only for runs that go on

        reach = read_reach(f"{self._runs}/{summary.id}")
        return make_row(summary, self._now, supervised=supervised, reach=reach)

    def _is_supervised(self, run: str) -> bool:
        from pathlib import Path  # noqa: PLC0415

        from drumline.runtime.lock import is_locked  # noqa: PLC0415

        return is_locked(Path(self._runs, run, LOCK))


def _number(row: RunRow) -> int:
    return row.summary.number
