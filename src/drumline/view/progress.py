"""Read the progress of replicas from the reports of their scripts, else from logs or TensorBoard's files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from drumline.errors import DrumlineError
from drumline.plan.types import ReplicaId
from drumline.run.pace import Pace, counted, pace_of
from drumline.run.progress import UNKNOWN, Progress, read_progress
from drumline.run.traces import LOG, REPORT, TRACE, trace_dir
from drumline.runtime.progress import Report, read_report
from drumline.store.folder import RunFolder
from drumline.store.home import RUNS
from drumline.store.index import Summary
from drumline.store.logs import read_end, read_tail, times_of
from drumline.view.incarnation import IncarnationTraces, incarnation_dirs
from drumline.view.replica_progress import ReplicaProgress
from drumline.view.scalars import output_dir, read_written
from drumline.view.stragglers import find_stragglers

TAIL_BYTES = 1 << 14

_SILENT_SECONDS = 60.0  # after this time without progress no remaining time is shown, unless reports are always so rare


def read_all_progress(
    incarnations: Mapping[ReplicaId, IncarnationTraces], output: str, chief: ReplicaId | None, now: float
) -> dict[ReplicaId, ReplicaProgress]:
    """Return the progress of each replica; stragglers among the running replicas are marked `is_behind`.

    `output` is the output folder. `chief` is not None only if `incarnations` are all of the attempt: then a file of an
    unknown process may belong to the chief.
    """
    found = {
        name: read_replica_progress(each.folder, now, runs=each.ended_at is None) for name, each in incarnations.items()
    }
    if any(replica_progress.progress.loss is None for name, replica_progress in found.items() if name.role != "ps"):
        for name, (written, at) in read_written(output, incarnations, chief).items():
            found[name] = _with_written(found[name], written, at)
    ages = {name: now - each.started_at for name, each in incarnations.items() if each.ended_at is None}
    for name in find_stragglers(found, ages):
        found[name] = found[name].replace(is_behind=True)
    return found


def read_chief_progress(home: Path, summary: Summary, now: float) -> ReplicaProgress:
    """Return the progress of the chief of a run that is not over, without reading the journal."""
    chief = ReplicaId("chief" if "chief" in summary.replica_counts else "worker", 0)
    folder = RunFolder(home / RUNS / summary.id)
    dirs = incarnation_dirs(folder.path, chief, summary.attempt)
    traces = (dirs or [folder.path / trace_dir(chief, summary.attempt)])[-1]
    started_at = _changed_at(traces / TRACE) or now  # a trace is written when its incarnation starts and when it ends
    try:
        output = output_dir(folder, folder.plan(), summary.directory)
    except DrumlineError:
        return ReplicaProgress()
    return read_all_progress({chief: IncarnationTraces(traces, started_at)}, output, None, now)[chief]


def read_replica_progress(folder: Path, now: float, *, runs: bool = True) -> ReplicaProgress:
    """Return the progress of one incarnation; with `runs` false, it has ended and has no remaining time."""
    log = folder / LOG
    at = _changed_at(log)
    tail, is_cut = read_tail(log, TAIL_BYTES) if at is not None else (b"", False)
    progress = read_progress(tail, is_cut=is_cut)
    report = read_report(folder / REPORT)
    if report:
        at, progress = report.at_seconds, _reported(report, progress)
    if progress == UNKNOWN or at is None:
        return ReplicaProgress()
    is_global = report is not None and "epoch" not in report.values
    replica_progress = ReplicaProgress(progress, at, is_reported=report is not None, is_global=is_global)
    if not runs:
        return replica_progress
    pace, said_at = _measure(report) if report else _clock(folder, progress)
    return _timed(replica_progress, pace, now - (said_at or at))


def _reported(report: Report, progress: Progress) -> Progress:
    """Return the progress of a report: its steps replace those of a bar, and its epochs if it has any."""
    epoch, epochs, steps = (_whole(report.values.get(word)) for word in ("epoch", "epochs", "steps"))
    return Progress(
        epoch=progress.epoch if epoch is None else epoch,
        epochs=progress.epochs if epoch is None and epochs is None else epochs,
        step=report.step,
        steps=steps if steps is not None and steps >= report.step else None,
        loss=report.values.get("loss", progress.loss),
        is_latest=True,
    )


def _measure(report: Report) -> tuple[Pace | None, float]:
    if report.since_step is None:
        return None, report.at_seconds
    moments = ((report.at_seconds, report.step), (report.since_seconds, report.since_step))
    pace = pace_of(moments)
    # The script is assumed to report each step.
    return pace and pace.replace(every_seconds=1 / pace.rate), report.at_seconds


def _clock(folder: Path, progress: Progress) -> tuple[Pace | None, float | None]:
    """Return the pace of a log by its marks, and the time (UTC, seconds) of its last step or epoch."""
    tail, start = read_end(folder / LOG, TAIL_BYTES)
    points = counted(tail, progress, is_cut=start > 0)
    if len(points) < 2:
        return None, None
    times = times_of(folder, (start + point.end for point in points))
    moments = [(at, point.reached) for at, point in zip(times, points, strict=True) if at is not None]
    return pace_of(moments), moments[0][0] if moments else None


def _timed(replica_progress: ReplicaProgress, pace: Pace | None, silence: float) -> ReplicaProgress:
    """Return the progress with the remaining time, unless the `silence` in seconds is longer than usual."""
    progress = replica_progress.progress
    rate = progress.rate or (pace.rate if pace and progress.step is not None else None)
    usual = max(pace.every_seconds if pace else 0.0, 1 / rate if rate else 0.0)
    if silence > max(_SILENT_SECONDS, 3 * usual):
        return replica_progress
    timed = progress.replace(rate=rate)
    eta, steps_eta = timed.eta_seconds, timed.steps_eta_seconds
    if pace and progress.step is None and progress.epoch and progress.epochs:
        eta = (progress.epochs - progress.epoch) / pace.rate
    return replica_progress.replace(
        pace=pace,
        steps_per_second=rate,
        eta_seconds=_left(eta, silence),
        steps_eta_seconds=_left(steps_eta, silence),
    )


def _left(seconds: float | None, silence: float) -> float | None:
    """Return the remaining seconds after a silence; None if they are over or not known."""
    left = None if seconds is None else seconds - max(0.0, silence)
    return None if left is None or left < 0 else left


def _with_written(replica_progress: ReplicaProgress, written: Progress, at: float) -> ReplicaProgress:
    """Return the progress, completed by the progress in TensorBoard's files, which was written at the time `at`."""
    if replica_progress.progress == UNKNOWN:
        return ReplicaProgress(written, at)
    if replica_progress.progress.loss is None:
        return replica_progress.replace(progress=replica_progress.progress.replace(loss=written.loss))
    return replica_progress


def _changed_at(path: Path) -> float | None:
    try:
        return os.stat(path).st_mtime  # noqa: PTH116
    except OSError:
        return None


def _whole(value: float | None) -> int | None:
    return int(value) if value is not None and value >= 0 and value.is_integer() else None
