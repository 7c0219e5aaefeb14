"""How far replicas are: as their scripts report it, else as their logs show it; read when somebody asks."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from drumline.plan.types import ReplicaId
from drumline.run.progress import UNKNOWN, Progress, read_progress
from drumline.run.traces import LOG, trace_dir
from drumline.store.home import RUNS
from drumline.store.logs import read_tail

if TYPE_CHECKING:
    from drumline.store.index import Summary

REPORT = "report"  # beside the log, as `runtime.report` writes it
REPORT_BYTES = 512
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
    is_behind: bool = False


def read_standing(folder: Path, now: float, *, runs: bool = True) -> Standing:
    """What one life said of itself last; who does not run any more takes no time."""
    log = folder / LOG
    at = _changed_at(log)  # before what is read: it may be older than that, and never younger
    tail, is_cut = read_tail(log, TAIL_BYTES) if at is not None else (b"", False)
    progress = read_progress(tail, is_cut=is_cut)
    report = _read_report(folder / REPORT)
    if report:
        said, at = report
        # Its steps are its own and not those of a bar; of epochs it says nothing unless it does.
        progress = Progress(
            epoch=progress.epoch if said.epoch is None else said.epoch,
            epochs=progress.epochs if said.epoch is None else None,
            step=said.step,
            loss=progress.loss if said.loss is None else said.loss,
            is_latest=True,
        )
    if progress == UNKNOWN or at is None:
        return Standing()
    silent = now - at > max(_SILENT_SECONDS, 3 / progress.rate if progress.rate else 0)
    if not runs or silent:
        return Standing(progress, at)
    return Standing(progress, at, progress.eta_seconds, progress.steps_eta_seconds)


def read_chief(home: str, summary: Summary, now: float) -> Standing:
    """How far the first of a run is, found without its plan."""
    chief = ReplicaId("chief" if "chief" in summary.headcount else "worker", 0)
    return read_standing(Path(home, RUNS, summary.id, trace_dir(chief, summary.attempt)), now)


def find_behind(standings: Mapping[ReplicaId, Standing], ages: Mapping[ReplicaId, float]) -> set[ReplicaId]:
    """Who is well behind those that count the same; `ages` are the seconds for which each has run.

    Who only has not said anything for a while is not behind: it counts with what it may have done since. Nor is one
    whose last line says nothing of steps: nobody knows when it was where.
    """
    alike: dict[object, list[ReplicaId]] = {}
    for name, (progress, at, *_) in standings.items():
        if name.role in _LINE and name in ages and progress.is_latest and progress.step is not None and at:
            alike.setdefault((progress.epoch, progress.epochs, progress.steps), []).append(name)
    behind: set[ReplicaId] = set()
    for names in alike.values():
        names.sort(key=lambda name: standings[name].progress.step or 0)
        middle = standings[names[len(names) // 2]]
        step = middle.progress.step or 0
        enough = max(_BEHIND_SHARE * step, _BEHIND_STEPS)
        behind.update(name for name in names if step - _perhaps(standings[name], ages[name], middle.at or 0.0) > enough)
    return behind


def _perhaps(standing: Standing, age: float, then: float) -> float:
    """How far it may have come by then, at most."""
    progress, at = standing.progress, standing.at or 0.0
    step, silence = progress.step or 0, then - at
    if silence <= 0:
        return step
    if progress.rate:
        return step + 2 * progress.rate * silence
    if progress.epoch is not None or age - silence <= 0:
        return float("inf")  # steps that begin anew with each epoch say nothing of its speed
    return step * (1 + 2 * silence / (age - silence))


def _changed_at(log: Path) -> float | None:
    try:
        return os.stat(log).st_mtime  # noqa: PTH116
    except OSError:
        return None


def _read_report(path: Path) -> tuple[Progress, float] | None:
    """The last report and its time; None if there is none, or it is being written at this moment."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    body = data[9:-1]
    if len(data) != REPORT_BYTES or data[:9] != b"%08x " % crc32(body):
        return None
    try:
        found = json.loads(body)
        values = {name: float(value) for name, value in found["values"].items()}
        epoch = values.get("epoch")
        whole = int(epoch) if epoch is not None and epoch.is_integer() and epoch >= 0 else None
        return Progress(epoch=whole, step=int(found["step"]), loss=values.get("loss")), float(found["at"])
    except (ValueError, TypeError, KeyError, AttributeError):
        return None  # of another version
