"""The CPU, memory and GPU use of replicas, as a table and as JSON."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec

from drumline.cli.frame import Frame
from drumline.cli.text import table_of, utc
from drumline.store.metrics import Sample
from drumline.view.monitor import MonitoredRun, UsageRow

GIB = 1 << 30
_NONE = "N/A"
_GPU_COLUMNS = ("GPU %", "GPU-MEM %", "GPU-MEM Used / Total")
# Columns that a narrow terminal leaves out, in this order; GPU columns without any value are left out first.
_DISPENSABLE = ("PROJECT", "GPU-MEM %", "MEM %", "STATE", "GPU-MEM Used / Total", "GPU %")


def usage_frame(runs: Sequence[MonitoredRun], width: int | None) -> Frame:
    """Return a table with a row for each replica and for each run, cut to a width."""
    rows = [(run.run.summary.project, row) for run in runs for row in run.rows]
    samples = [row.used for _, row in rows]
    columns = {
        "ID": [row.id for _, row in rows],
        "PROJECT": [project for project, _ in rows],
        "STATE": [row.phase for _, row in rows],
        "CPU %": [_percent(used.cpu_share) if used else _NONE for used in samples],
        "MEM %": [_part(used.memory_bytes, used.memory_total_bytes) if used else _NONE for used in samples],
        "MEM Used / Total": [
            _sizes(used.memory_bytes, used.memory_total_bytes) if used else _sizes(None, None) for used in samples
        ],
        "GPU %": [_marked(_percent(used.gpu_share), used) if used else _NONE for used in samples],
        "GPU-MEM %": [
            _marked(_part(used.gpu_memory_bytes, used.gpu_memory_total_bytes), used) if used else _NONE
            for used in samples
        ],
        "GPU-MEM Used / Total": [
            _sizes(used.gpu_memory_bytes, used.gpu_memory_total_bytes) if used else _sizes(None, None)
            for used in samples
        ],
    }
    words = []
    if any(used and used.gpu_is_whole for used in samples):
        words.append("* of the whole GPU: the share of each process is not known here")
    if (hint := _missing_library(samples)) and any(samples):
        words.append(hint)
    return Frame(_fit(columns, width), words, is_table=True)


def _fit(columns: dict[str, list[str]], width: int | None) -> list[str]:
    """Return a table, without the columns that do not fit."""
    idle = [name for name in _GPU_COLUMNS if all(cell.startswith(_NONE) for cell in columns[name])]
    dropped: set[str] = set()
    for more in ([], idle, *([name] for name in _DISPENSABLE)):
        dropped.update(more)
        lines = table_of({name: cells for name, cells in columns.items() if name not in dropped})
        if width is None or max(map(len, lines)) <= width:
            break
    return lines


def _percent(share: float | None) -> str:
    return _NONE if share is None else f"{share * 100:.0f}"


def _part(used: int | None, total: int | None) -> str:
    return _percent(used / total) if used is not None and total else _NONE


def _sizes(used: int | None, total: int | None) -> str:
    return f"{_gib(used)} / {_gib(total)}"


def _gib(amount: int | None) -> str:
    return _NONE if amount is None else f"{amount / GIB:.1f}"


def _marked(text: str, used: Sample) -> str:
    """Return a number, marked with `*` if it is that of the whole GPU."""
    return f"{text}*" if used.gpu_is_whole and text != _NONE else text


def _missing_library(samples: Sequence[Sample | None]) -> str:
    """Return a message if this machine has GPUs and their use cannot be read; otherwise an empty text."""
    known = any(used and used.gpu_memory_total_bytes for used in samples)
    if known or not os.path.exists("/dev/nvidiactl") or find_spec("pynvml"):  # noqa: PTH110
        return ""
    return "this machine has GPUs, but they cannot be read: `pip install 'drumline[gpu]'`"


def run_usage(run: MonitoredRun) -> dict[str, object]:
    """Return the use of a run as JSON data."""
    return {
        "id": run.run.summary.id,
        "project": run.run.summary.project,
        "state": run.run.summary.phase,
        "supervisor_gone": run.run.supervisor_gone,
        "replicas": [_row(row) for row in run.replicas],
        "total": _row(run.total) if run.total else None,
    }


def _row(row: UsageRow) -> dict[str, object]:
    return {"id": row.id, "state": row.phase, **sample_data(row.used)}


def sample_data(used: Sample | None) -> dict[str, object]:
    """Return a sample as JSON data; None is not known."""
    known = used or Sample(0.0, 0.0, 0.0)
    return {
        "at": utc(known.at) if used else None,
        "seconds": round(known.seconds, 3) if used else None,
        "cpu_percent": round(known.cpu_share * 100, 1) if used else None,
        "memory_bytes": known.memory_bytes,
        "memory_total_bytes": known.memory_total_bytes,
        "gpu_percent": None if known.gpu_share is None else round(known.gpu_share * 100, 1),
        "gpu_memory_bytes": known.gpu_memory_bytes,
        "gpu_memory_total_bytes": known.gpu_memory_total_bytes,
        "gpu_devices": [index for index in range(64) if known.gpu_devices >> index & 1],
        "gpu_is_whole_device": known.gpu_is_whole,
    }
