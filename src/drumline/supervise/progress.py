"""Detect the first step of an attempt, in its logs, in reports of its scripts, or in TensorBoard's files.

Each byte of a log is read once, and nothing is read after the first step is known. Parsers are imported when there is a
line to parse.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path

from drumline.plan.types import COMPUTING, Plan, ReplicaId
from drumline.run.event import FirstStepTaken
from drumline.run.state import RunState
from drumline.run.traces import LOG, REPORT, trace_dir
from drumline.runtime.private import open_regular

_MOST_BYTES = 1 << 16  # new bytes of a log that are read in one check; of more only the end is read
_MOST_FILES = 4
# The time of the step is read from marks, so a check need not follow the step at once: the longer there was no step,
# the longer the next check waits.
_PAUSES_PER_CHECK, _PAUSES_PER_AGE, _LONGEST_PAUSE_SECONDS = 200, 20, 5.0
_FEW = 16
_WORDS = (b"loss", b"%|")  # each line that reports a step has one of these

# TensorBoard's files are checked less often.
_FILES_PAUSE_SECONDS, _FILES_LONGEST_SECONDS = 2.0, 30.0


class ProgressWatch:
    """Detects the first step of the current attempt; keeps how much of each log it has read."""

    def __init__(self, run_dir: Path, plan: Plan, output_dir: Callable[[], str], clock: Callable[[], float]) -> None:
        self._run_dir = run_dir
        self._computing = [replica.id for replica in plan.replicas if replica.id.role in COMPUTING]
        self._output_dir = output_dir
        self._clock = clock
        self._seen = RunState().replicas
        self._begin(0, ())

    def _begin(self, attempt: int, incarnations: Sequence[int]) -> None:
        self._attempt, self._incarnations = attempt, incarnations
        known = zip(self._computing, incarnations, strict=False)  # none before the first attempt
        watched = {self._run_dir / trace_dir(name, attempt, number): name for name, number in known}
        self._watched = watched
        self._read = dict.fromkeys(watched, 0)
        self._unread = set(watched)
        self._since = self._next_check = self._clock()
        self._next_files = self._since + _FILES_PAUSE_SECONDS

    def find_first_step(
        self, state: RunState, grown: Iterable[Path] = (), *, exited: AbstractSet[ReplicaId] = frozenset()
    ) -> tuple[FirstStepTaken, ...]:
        """Return the event of the first step, if there is one; called at every tick with the folders of grown logs.

        Also called with the replicas that have `exited` before their exits are judged, since the decision may depend on
        whether a step was taken.
        """
        if state.stepped or not state.replicas:
            return ()
        if state.replicas is not self._seen:
            self._seen = state.replicas
            incarnations = tuple(state.replicas[name].incarnation for name in self._computing)
            if (state.attempt, incarnations) != (self._attempt, self._incarnations):
                self._begin(state.attempt, incarnations)
        self._unread.update(folder for folder in grown if folder in self._watched)
        began = self._clock()
        if began < self._next_check and not exited:
            return ()
        folders = self._unread | {folder for folder, name in self._watched.items() if name in exited}
        if exited and len(self._watched) <= _FEW:  # any replica may have taken the step; reading few logs is cheap
            folders = set(self._watched)
        self._unread -= folders
        found = [step for folder in self._watched if (step := self._reported(folder))]
        found += [step for folder in folders if (step := self._printed(folder))]
        if not found and began >= self._next_files:
            found = self._written(began)
        pause = min((began - self._since) / _PAUSES_PER_AGE, _LONGEST_PAUSE_SECONDS)
        pause = max(pause, _PAUSES_PER_CHECK * (self._clock() - began))
        self._next_check = max(self._next_check, began + pause)
        return (min(found, key=lambda step: (step.at_seconds, step.replica)),) if found else ()

    def _taken(self, name: ReplicaId, step: int | None, at: float | None) -> FirstStepTaken:
        """Return the event of a step that was taken at this time (UTC, seconds), or now if the time is not known."""
        ago = 0.0 if at is None else max(0.0, time.time() - at)
        return FirstStepTaken(self._attempt, name, step, round(self._clock() - ago, 3))

    def _reported(self, folder: Path) -> FirstStepTaken | None:
        path = f"{folder}/{REPORT}"
        if not os.path.exists(path):  # noqa: PTH110 - often, for each replica
            return None
        from drumline.runtime.progress import read_report  # noqa: PLC0415 - only where a script reports

        report = read_report(path)
        if report is None:
            return None
        if report.since_step is None:
            return self._taken(self._watched[folder], report.step, report.at_seconds)
        return self._taken(self._watched[folder], report.since_step, report.since_seconds)

    def _printed(self, folder: Path) -> FirstStepTaken | None:
        data, start = _read_on(folder / LOG, self._read[folder])
        if not any(word in data.lower() for word in _WORDS):
            self._read[folder] = start + _whole(data)
            return None
        from drumline.run.progress import newest_first, read_piece, read_progress  # noqa: PLC0415 - see above
        from drumline.store.logs import times_of  # noqa: PLC0415

        is_cut = start > self._read[folder]
        self._read[folder] = start + _whole(data)
        # The oldest complete piece with a step; else the bar that is being drawn.
        first, end = read_progress(data, is_cut=is_cut), len(data)
        for piece in newest_first(data, is_cut=is_cut):
            said = read_piece(piece)
            if said and (said.step is not None or said.loss is not None):
                first, end = said, piece.end
        if first.step is None and (first.loss is None or first.epoch is None):
            return None  # the header of an epoch is not a step
        (at,) = times_of(folder, (start + end - 1,))
        return self._taken(self._watched[folder], first.step, at)

    def _written(self, now: float) -> list[FirstStepTaken]:
        """Return the steps in TensorBoard's files of this attempt.

        A file belongs to the replica with its pid or session. A file of a process that has ended belongs to the first
        replica if it is in the run's folder.
        """
        from drumline.run.scalars import progress_in  # noqa: PLC0415 - see above
        from drumline.store.scalars import BY_KERAS, find_event_files, last_scalars  # noqa: PLC0415
        from drumline.store.writers import pid_of, session_of  # noqa: PLC0415

        pause = min(max(_FILES_PAUSE_SECONDS, (now - self._since) / _PAUSES_PER_AGE), _FILES_LONGEST_SECONDS)
        self._next_files = now + pause
        files = find_event_files(folder) if (folder := self._output_dir()) else []
        if not files:
            return []
        found, pids = [], {pid: name for folder, name in self._watched.items() if (pid := pid_of(folder)) is not None}
        since = int(next(iter(self._watched)).parent.stat().st_mtime)
        for file in files[:_MOST_FILES]:
            session = None if file.pid is None else session_of(file.pid)
            own = session is None and self._run_dir in Path(file.path).parents
            name = pids.get(file.pid or 0) or pids.get(session or 0) or (self._computing[0] if own else None)
            if name and file.made_at >= since:
                said = progress_in(last_scalars(file), by_keras=file.folder == BY_KERAS)
                found += [self._taken(name, said[0].step, said[1])] if said else []
        return found


def _read_on(path: Path, offset: int) -> tuple[bytes, int]:
    """Return the bytes of a log from this offset on, and their offset: a later one if there are too many bytes."""
    with suppress(OSError):
        file = open_regular(path, os.O_RDONLY)
        try:
            start = max(offset, os.fstat(file).st_size - _MOST_BYTES)
            return os.pread(file, _MOST_BYTES, start), start
        finally:
            os.close(file)
    return b"", offset


def _whole(data: bytes) -> int:
    """Return the number of bytes up to the last line end or carriage return."""
    return max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
