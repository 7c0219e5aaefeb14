"""The CPU, memory and GPU use of replicas since the start of a run, as bars and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

from drumline.cli.find import find_run
from drumline.cli.frame import Frame, terminal_columns
from drumline.cli.terminal import json_lines
from drumline.cli.text import table, utc
from drumline.cli.usage import GIB, sample_data
from drumline.run.id import Target
from drumline.store.clock import read_clock
from drumline.store.metrics import Sample
from drumline.view.history import Extent, ReplicaUse, RunUse, Value, extent, run_use, series
from drumline.words import format_duration

_BARS = "▁▂▃▄▅▆▇█"
_SHORTEST, _USUAL = 10, 80


def history_frame(home: Path, targets: Sequence[Target], form: str) -> Frame:
    """Return the recorded use of the runs and replicas in `targets`, as text or as JSON."""
    runs = [run_use(find_run(home, target.run), target, read_clock()) for target in targets]
    if form == "json":
        return Frame(json_lines([_data(run) for run in runs]), is_data=True)
    empty = [run.run.summary.id for run in runs if not any(replica.samples for replica in run.replicas)]
    messages = [f"run {name}: its use was not recorded" for name in empty]
    shown: list[str] = []
    for run in runs:
        if run.run.summary.id not in empty:
            shown += [""] * bool(shown) + _lines(run, terminal_columns() or _USUAL)
    return Frame(shown, messages, is_table=True)


def _cores(sample: Sample) -> float:
    return sample.cpu_share * 100


def _memory(sample: Sample) -> float | None:
    return None if sample.memory_bytes is None else sample.memory_bytes / GIB


def _gpu(sample: Sample) -> float | None:
    return None if sample.gpu_share is None else sample.gpu_share * 100


def _gpu_memory(sample: Sample) -> float | None:
    return None if sample.gpu_memory_bytes is None else sample.gpu_memory_bytes / GIB


_MEASURES: dict[str, tuple[Value, str]] = {
    "CPU %": (_cores, ".0f"),
    "MEM GiB": (_memory, ".1f"),
    "GPU %": (_gpu, ".0f"),
    "GPU-MEM GiB": (_gpu_memory, ".1f"),
}


def _lines(run: RunUse, width: int) -> list[str]:
    """Return a table with a row for each measure of a replica, and bars over time in the space that is left."""
    summary = run.run.summary
    known = [
        (replica, what, found, form, value)
        for replica in run.replicas
        for what, (value, form) in _MEASURES.items()
        if (found := extent(replica.samples, value))
    ]
    rows = [(replica.id, what, *_numbers(found, form)) for replica, what, found, form, _ in known]
    lines = table(("ID", "", "MIN", "MEAN", "MAX"), rows)
    room = width - max(map(len, lines)) - 2
    bars = [
        _bars(series(replica.samples, value, start=run.start, end=run.end, width=room), found.most)
        for replica, _, found, _, value in known
        if room >= _SHORTEST
    ]
    left = max(map(len, lines))
    drawn = [f"{line:<{left}}  {bar}".rstrip() for line, bar in zip_longest(lines, ["", *bars], fillvalue="")]
    lasted = format_duration(run.end - run.start)
    title = f"Run {summary.id} ({summary.project}), {summary.phase}: {lasted} from {utc(run.start)} to {utc(run.end)}"
    return [title, "", *drawn]


def _numbers(found: Extent, form: str) -> tuple[str, ...]:
    return tuple(f"{number:{form}}" for number in (found.least, found.mean, found.most))


def _bars(values: Sequence[float | None], most: float) -> str:
    """Return one bar for each interval; `most` has the highest bar, an interval without a value a space."""
    height = len(_BARS) - 1
    return "".join(
        " " if value is None else _BARS[min(height, round(value / most * height)) if most > 0 else 0]
        for value in values
    )


def _data(run: RunUse) -> dict[str, object]:
    return {
        "id": run.run.summary.id,
        "project": run.run.summary.project,
        "state": run.run.summary.phase,
        "replicas": [_replica(replica) for replica in run.replicas],
    }


def _replica(replica: ReplicaUse) -> dict[str, object]:
    samples = replica.samples
    memory = [sample.memory_bytes for sample in samples if sample.memory_bytes is not None]
    return {
        "id": replica.id,
        "seconds": round(sum(sample.seconds for sample in samples), 3),
        "cpu_seconds": round(sum(sample.cpu_seconds for sample in samples), 3),
        "most_memory_bytes": max(memory, default=None),
        "samples": [sample_data(sample) for sample in samples],
    }
