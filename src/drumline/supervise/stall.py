"""Detect that the steps of an attempt have stopped, and that they continue.

A step is read from a log, from a report of the script, or else from TensorBoard's files. The times of steps in logs
follow from marks. The times of other steps are recorded here, in a file beside the log, since goodput needs them.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from drumline.engine.protocol import ReportEvent, Session
from drumline.engine.tasks import Work
from drumline.plan.types import COMPUTING, Plan, ReplicaId
from drumline.run.blocking import ActivityKind, Diagnosis, find_blocking_replica
from drumline.run.event import GangHung, StepsResumed, StepsStalled
from drumline.run.incarnation import Incarnation
from drumline.run.progress import Progress, read_progress
from drumline.run.stall import Gaps, is_stalled, with_step
from drumline.run.state import Phase, RunState
from drumline.run.traces import LOG, REPORT, STACKS, STEP_FORMAT, STEPS, TRACE, trace_dir
from drumline.runtime.private import open_file
from drumline.runtime.progress import read_report
from drumline.store.logs import read_tail
from drumline.supervise.hang import read_activities, save_stacks, work_samples_of
from drumline.view.incarnation import IncarnationTraces
from drumline.view.steps import step_sources
from drumline.words import format_duration

STEP = struct.Struct(STEP_FORMAT)

_TAIL_BYTES = 1 << 14
_PAUSE_SECONDS = 1.0
_MOST_REPLICAS = 16  # number of replicas that are read; in a large run the first ones suffice

# Writers of TensorBoard's files flush every two minutes, unless a script does so earlier.
_FILES_LAG_SECONDS = 120.0
_FILES_PAUSE_SECONDS, _FILES_PAUSES_PER_CHECK = 5.0, 200


class StallWatch:
    """Detects that the steps of the current attempt stall or resume."""

    def __init__(
        self,
        run_dir: Path,
        plan: Plan,
        session: Session,
        report: ReportEvent,
        output_dir: Callable[[], str],
        clock: Callable[[], float],
        start_task: Callable[[Work], object],
    ) -> None:
        self._run_dir = run_dir
        self._output_dir = output_dir
        self._chief = plan.chief
        self._step_sources = step_sources(plan)
        self._session = session
        self._report = report
        self._clock = clock
        self._start_task = start_task
        self._steps_seconds = plan.timeouts.steps_seconds
        computing = [replica.id for replica in plan.replicas if replica.id.role in COMPUTING]
        self._watched = computing[:_MOST_REPLICAS]
        self._reset(None)

    def _reset(self, attempt: int | None) -> None:
        self._attempt = attempt
        self._gaps: Gaps | None = None
        self._seen: dict[ReplicaId, tuple[int | None, int | None]] = {}  # epoch and step
        self._unread: set[str] = set()
        self._reporting: set[Path] = set()  # folders of incarnations that report steps; their logs are not read
        self._in_files_only = True  # no log and no report has had a step
        self._next_files = self._clock()
        self._is_done = False  # the log names the last step
        self._is_reported = False
        self._next_check = self._clock()

    def check(self, state: RunState, grown: Iterable[Path]) -> None:
        """Check the steps if a check is due; called at every tick with the folders of logs that have grown."""
        if state.phase is not Phase.RUNNING or state.ending or not state.stepped:
            self._reset(None)
            return
        if state.attempt != self._attempt:
            self._reset(state.attempt)
        self._unread.update(folder.name for folder in grown)
        now = self._clock()
        if now < self._next_check:
            return
        self._next_check = now + _PAUSE_SECONDS
        if self._reads_step(state, now):
            if self._is_reported or state.stalled:
                self._report(StepsResumed(state.attempt, self._gaps.step if self._gaps else None, now))
            self._is_reported = False
        elif self._gaps and not self._is_done:
            self._judge(state, self._gaps, now)

    def _judge(self, state: RunState, gaps: Gaps, now: float) -> None:
        lasted, lag = now - gaps.at_seconds, _FILES_LAG_SECONDS if self._in_files_only else 0.0
        if self._steps_seconds is not None and lasted >= self._steps_seconds + lag:
            since = "" if gaps.step is None else f", since step {gaps.step}"
            self._report(GangHung(state.attempt, f"no step for {format_duration(lasted)}{since}"))
        elif is_stalled(gaps, now, lag) and not self._is_reported:
            self._is_reported = True
            running = state.current(name for name, each in state.replicas.items() if each.phase is Phase.RUNNING)
            for incarnation in running:  # stacks that were saved earlier are outdated
                with suppress(OSError):
                    (self._run_dir / incarnation.folder / STACKS).unlink()
            self._start_task(self._report_stall(state.attempt, running, gaps))

    async def _report_stall(self, attempt: int, running: Sequence[Incarnation], gaps: Gaps) -> None:
        await save_stacks(self._session, running, gently=True)
        stopped = {work.replica for work in await work_samples_of(self._session) if work.is_stopped}
        if attempt != self._attempt or not self._is_reported:
            return  # the attempt has ended, or has taken a step meanwhile
        found = read_activities(self._run_dir, running, stopped)
        known = any(each.kind is not ActivityKind.UNKNOWN for each in found.values())
        diagnosis = find_blocking_replica(found) if known else Diagnosis(None, "")
        lasted = round(self._clock() - gaps.at_seconds, 3)
        self._report(StepsStalled(attempt, gaps.step, gaps.at_seconds, lasted, diagnosis.replica, diagnosis.message))

    def _reads_step(self, state: RunState, now: float) -> bool:
        """Read reports and new output; return whether a replica is at another step than before."""
        folders = {
            name: self._run_dir / trace_dir(name, state.attempt, state.replicas[name].incarnation)
            for name in self._watched
        }
        found = {name: progress for name, folder in folders.items() if (progress := self._progress(folder))}
        self._unread.clear()
        self._in_files_only = self._in_files_only and not found
        if self._in_files_only and now >= self._next_files:
            found = self._written(folders)
            self._next_files = now + max(_FILES_PAUSE_SECONDS, _FILES_PAUSES_PER_CHECK * (self._clock() - now))
        stepped = False
        for name, progress in found.items():
            reached = progress.epoch, progress.step
            if self._seen.get(name) == reached:
                continue
            self._seen[name] = reached
            self._gaps, stepped = with_step(self._gaps, now, progress.step), True
            ends_epoch = progress.step is not None and progress.step == progress.steps
            self._is_done = ends_epoch and progress.epoch == progress.epochs
            if name in self._step_sources and (self._in_files_only or folders[name] in self._reporting):
                _note_step(folders[name], progress)
        return stepped

    def _progress(self, folder: Path) -> Progress | None:
        """Return the step that a script reports, else a step in the new output of its log; None if there is none."""
        report = read_report(folder / REPORT)
        if report is not None:
            self._reporting.add(folder)
            return Progress(step=report.step, loss=report.values.get("loss"))
        if folder in self._reporting or folder.name not in self._unread:
            return None
        tail, is_cut = read_tail(folder / LOG, _TAIL_BYTES)
        progress = read_progress(tail, is_cut=is_cut)
        return None if progress.step is None and progress.loss is None else progress

    def _written(self, folders: Mapping[ReplicaId, Path]) -> dict[ReplicaId, Progress]:
        """Return the progress of the replicas according to TensorBoard's files."""
        from drumline.view.scalars import read_written  # noqa: PLC0415 - only where neither logs nor reports have steps

        incarnations = {
            name: IncarnationTraces(folder, made)
            for name, folder in folders.items()
            if (made := _made_at(folder)) is not None
        }
        output = self._output_dir()
        return {name: progress for name, (progress, _) in read_written(output, incarnations, self._chief).items()}


def _made_at(folder: Path) -> float | None:
    """Return when an incarnation started (UTC, seconds): its trace is written at its start, and again at its end."""
    try:
        return os.stat(folder / TRACE).st_mtime  # noqa: PTH116
    except OSError:
        return None


def _note_step(folder: Path, progress: Progress) -> None:
    """Append a step and the present time to the file of steps; without effect if it cannot be written."""
    numbers = (-1 if each is None else each for each in (progress.epoch, progress.step))
    with suppress(OSError):
        file = open_file(folder / STEPS, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            os.write(file, STEP.pack(time.time(), *numbers))
        finally:
            os.close(file)
