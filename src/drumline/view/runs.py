"""List runs, newest first. A run is read from the index if its row is up to date, else from its folder."""

from __future__ import annotations

import json
from collections.abc import Iterable
from heapq import merge
from itertools import islice
from pathlib import Path

from drumline.errors import DrumlineError, NotFoundError
from drumline.record import Record
from drumline.run.codec import event_from_data
from drumline.run.event import StepsStalled
from drumline.runtime.lock import is_locked
from drumline.store.clock import Moment
from drumline.store.folder import RunFolder
from drumline.store.home import RUNS, run_ids
from drumline.store.index import Index, Summary, UnusableIndexError, spell_directory, stamp_of, use_index
from drumline.store.reachability import Reachability, read_reachability
from drumline.store.summary import summarise


class RunRow(Record):
    """One run."""

    summary: Summary
    duration_seconds: float | None  # until now, if the run is not over
    supervisor_gone: bool
    stalled: StepsStalled | None = None  # the stall of a run that takes no steps, with `seconds` up to now
    reach: Reachability | None = None  # of the remote supervisor, until the run is over; None without one

    @property
    def unreachable(self) -> str:
        """Return why the supervisor cannot be reached; empty if it can be reached, or has exited."""
        return self.reach.problem if self.reach and not self.supervisor_gone else ""


class Listing(Record):
    """Runs, whether there are older runs, and the problems of runs that cannot be read."""

    runs: tuple[RunRow, ...]
    has_more: bool
    problems: tuple[str, ...]


def recent_runs(home: Path, now: Moment, *, directory: str | None = None, limit: int | None = None) -> Listing:
    """Return the last `limit` runs, of all projects or of the project in `directory`, newest first."""
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


def make_row(summary: Summary, now: Moment, *, supervised: bool, reach: Reachability | None = None) -> RunRow:
    """Return the row of a run; `supervised` if a process holds its lock."""
    duration = summary.duration_seconds
    if not summary.is_final and summary.started_at is not None:
        started = Moment(summary.started_at, summary.started_since_boot or 0.0, summary.started_boot or "")
        duration = now.seconds_since(started)
    stalled = _stall(summary, now.at) if summary.stalled else None
    gone = not (summary.is_final or supervised)
    return RunRow(summary, duration, supervisor_gone=gone, stalled=stalled, reach=None if summary.is_final else reach)


def _stall(summary: Summary, now: float) -> StepsStalled | None:
    event = event_from_data(json.loads(summary.stalled))
    if not isinstance(event, StepsStalled) or summary.stalled_at is None:
        return None
    return event.replace(seconds=max(event.seconds, now - summary.stalled_at))


class _Reader:
    """Reads the rows of one project or of all; keeps the summaries of runs that were read from their folders."""

    def __init__(self, home: Path, now: Moment, directory: str | None) -> None:
        self._runs = home / RUNS
        self._now = now
        self._directory = directory
        self._fresh: dict[str, Summary] = {}
        self.problems: dict[str, str] = {}

    def read_index(self, index: Index, ids: set[str], most: int | None) -> list[RunRow]:
        """Return at most `most` rows, newest first.

        Runs with no row or an outdated row are read from their folders, and written to the index. Rows of runs without
        a folder are removed.
        """
        known = index.ids()
        missing = self.read_folders(ids - known)
        indexed = known & ids  # without runs that are added to the index meanwhile
        kept = (summary for summary in index.rows(self._directory) if summary.id in indexed)
        checked = (row for summary in kept if (row := self._check(summary)) is not None)
        rows = list(islice(merge(missing, checked, key=_number, reverse=True), most))
        if self._fresh:
            index.put(self._fresh.values())
        if known - ids:
            index.forget(known - ids)
        return rows

    def read_folders(self, ids: Iterable[str]) -> list[RunRow]:
        """Read these runs from their folders, newest first."""
        newest_first = sorted(ids, key=int, reverse=True)
        return [row for run in newest_first if (row := self._read(run)) is not None]

    def _check(self, summary: Summary) -> RunRow | None:
        # The lock is checked before the journal: a run that ends meanwhile is shown as over, not as without a
        # supervisor.
        try:
            supervised = summary.is_final or is_locked(self._folder(summary.id).lock_file)
        except OSError:  # `_read` reports the problem
            return self._read(summary.id)
        if stamp_of(self._folder(summary.id).journal_file) != summary.stamp:
            return self._read(summary.id)
        return self._row(summary, supervised=supervised)

    def _read(self, run: str) -> RunRow | None:
        folder = self._folder(run)
        try:
            supervised = is_locked(folder.lock_file)
            summary = summarise(folder)
        except NotFoundError:
            return None  # the run was never started, or has just been removed
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
        reach = None if summary.is_final else read_reachability(self._folder(summary.id).path)
        return make_row(summary, self._now, supervised=supervised, reach=reach)

    def _folder(self, run: str) -> RunFolder:
        return RunFolder(self._runs / run)


def _number(row: RunRow) -> int:
    return row.summary.number
