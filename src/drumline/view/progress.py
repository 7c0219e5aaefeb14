"""How far replicas are: as their scripts report it, else as their logs show it; read when somebody asks."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from drumline.plan.types import ReplicaId
from drumline.run.progress import UNKNOWN, Progress, read_progress
from drumline.run.traces import LOG, REPORT, trace_dir
from drumline.runtime.progress import read_report
from drumline.store.home import RUNS
from drumline.store.logs import read_tail

if TYPE_CHECKING:
    from drumline.store.index import Summary

TAIL_BYTES = 1 << 14

_SILENT_SECONDS = 60.0  # after that much silence nobody knows how long it will take, unless its steps are as long
_BEHIND_SHARE, _BEHIND_STEPS = 0.2, 3
_LINE = ("chief", "worker")  # who train side by side


class Standing(NamedTuple):
    """How far a replica is, when it said so, and how long it will take if it goes on like that."""

    progress: Progress = UNKNOWN
    at: float | None = None  # UTC, seconds
    eta_seconds: float | None = None  # to the end of the last epoch
    steps_eta_seconds: float | None = None  # to the last of its steps
    is_global: bool = False  # its steps are those of the whole training
    is_behind: bool = False


def read_standing(folder: Path, now: float, *, runs: bool = True) -> Standing:
    """What one life said of itself last; who does not run any more takes no time."""
    log = folder / LOG
    at = _changed_at(log)
    tail, is_cut = read_tail(log, TAIL_BYTES) if at is not None else (b"", False)
    progress = read_progress(tail, is_cut=is_cut)
    report = read_report(folder / REPORT)
    if report:
        # Its steps are its own and not those of a bar; of epochs it says nothing unless it does.
        epoch = _whole(report.values.get("epoch"))
        at = report.at_seconds
        progress = Progress(
            epoch=progress.epoch if epoch is None else epoch,
            epochs=progress.epochs if epoch is None else None,
            step=report.step,
            loss=report.values.get("loss", progress.loss),
            is_latest=True,
        )
    if progress == UNKNOWN or at is None:
        return Standing()
    standing = Standing(progress, at, is_global=report is not None and "epoch" not in report.values)
    if not runs or now - at > max(_SILENT_SECONDS, 3 / progress.rate if progress.rate else 0):
        return standing
    return standing._replace(eta_seconds=progress.eta_seconds, steps_eta_seconds=progress.steps_eta_seconds)


def read_chief(home: str, summary: Summary, now: float) -> Standing:
    """How far the first of a run is, found without its plan."""
    chief = ReplicaId("chief" if "chief" in summary.headcount else "worker", 0)
    return read_standing(Path(home, RUNS, summary.id, trace_dir(chief, summary.attempt)), now)


def find_behind(standings: Mapping[ReplicaId, Standing], ages: Mapping[ReplicaId, float]) -> set[ReplicaId]:
    """Who is well behind those that count the same; `ages` are the seconds for which each has run.

    Steps in a log begin anew with each epoch, or may: they are compared only within one that is known. Who has only
    said nothing for a while counts with what it may have done since, and who wrote of something else not at all:
    nobody knows when it was where.
    """
    alike: dict[object, list[ReplicaId]] = {}
    for name, standing in standings.items():
        progress = standing.progress
        if name.role not in _LINE or name not in ages or progress.step is None or not progress.is_latest:
            continue
        if standing.is_global or progress.epoch is not None:
            unit = None if standing.is_global else (progress.epoch, progress.epochs, progress.steps)
            alike.setdefault(unit, []).append(name)
    behind: set[ReplicaId] = set()
    for names in alike.values():
        names.sort(key=lambda name: standings[name].progress.step or 0)
        middle = standings[names[len(names) // 2]]
        step = middle.progress.step or 0
        enough = max(_BEHIND_SHARE * step, _BEHIND_STEPS)
        behind.update(name for name in names if step - _perhaps(standings[name], ages[name], middle.at or 0.0) > enough)
    return behind


def _perhaps(standing: Standing, age: float, then: float) -> float:
    """How far it may have come by then, at most: twice as fast as it was."""
    progress, silence = standing.progress, then - (standing.at or 0.0)
    step = progress.step or 0
    if silence <= 0:
        return step
    if progress.rate:
        return step + 2 * progress.rate * silence
    if not standing.is_global or silence >= age:
        return math.inf
    return step * (1 + 2 * silence / (age - silence))


def _changed_at(log: Path) -> float | None:
    try:
        return os.stat(log).st_mtime  # noqa: PTH116
    except OSError:
        return None


def _whole(value: float | None) -> int | None:
    return int(value) if value is not None and value >= 0 and value.is_integer() else None
