"""A run as JSON and as a short note, for the list of runs and for the page of one run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from drumline.cli.text import rounded, utc
from drumline.run.event import StepsStalled
from drumline.run.stall import describe_stall
from drumline.view.runs import RunRow

if TYPE_CHECKING:
    from drumline.view.replica_progress import ReplicaProgress


def run_data(row: RunRow, replica_progress: ReplicaProgress | None = None) -> dict[str, object]:
    """Return a run and the progress of its chief as JSON data."""
    from drumline.cli.progress import progress_data  # noqa: PLC0415 - `status` as a table must be fast

    run = row.summary
    return {
        "id": run.id,
        "project": run.project,
        "name": run.name,
        "directory": run.directory,
        "framework": run.framework,
        "engine": run.engine,
        "state": run.phase,
        "reason": run.reason,
        "message": run.message,
        "created_at": utc(run.created_at),
        "started_at": utc(run.started_at),
        "finished_at": utc(run.finished_at),
        "duration_seconds": rounded(row.duration_seconds),
        "attempt": run.attempt,
        "roles": run.replica_counts,
        "parameters": json.loads(run.parameters),
        "supervisor_gone": row.supervisor_gone,
        **({"supervisor_unreachable": row.unreachable} if row.unreachable else {}),
        "progress": progress_data(replica_progress),
        "stalled": row.stalled and _stall_data(run.id, row.stalled),
    }


def _stall_data(run: str, stalled: StepsStalled) -> dict[str, object]:
    return {
        "seconds": rounded(stalled.seconds),
        "step": stalled.step,
        "replica": f"{run}.{stalled.replica}" if stalled.replica else None,
        "message": describe_stall(stalled),
    }


def note(row: RunRow) -> str:
    """Return notes about a run beside its state: a missing supervisor, the attempt, the message; empty without any."""
    run = row.summary
    notes = []
    if row.supervisor_gone:
        notes.append(f"supervisor gone; drumline supervise {run.id}")
    if row.unreachable:
        notes.append(f"as of the last contact; supervisor not reachable: {row.unreachable}")
    if run.attempt:
        notes.append(f"attempt {run.attempt}")
    if run.phase == "FAILED":
        notes.append(run.message or run.reason)
    elif run.message and not row.supervisor_gone and (not run.is_final or run.reason == "Preempted"):
        notes.append(run.message)
    return "; ".join(notes)
