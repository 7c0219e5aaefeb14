"""The progress of a training, as text, as cells of a table and as JSON; unknown values are left out."""

from __future__ import annotations

import math
from collections.abc import Sequence

from drumline.view.replica_progress import ReplicaProgress
from drumline.words import format_duration, listed


def describe(replica_progress: ReplicaProgress) -> str:
    """Return `epoch 3/10, step 20/100, loss 0.31`."""
    parts = {
        "epoch": epoch_cell(replica_progress),
        "step": _step(replica_progress),
        "loss": spell_loss(replica_progress),
    }
    return ", ".join(f"{word} {text}" for word, text in parts.items() if text)


def sum_up(run: str, chief: ReplicaProgress, behind: Sequence[str]) -> str:
    """Return `run 4: epoch 2/3, step 120/400, about 40s left; 4.worker.1 is behind`; empty if nothing is known."""
    known = describe(chief)
    if chief.eta_seconds is not None:
        known += f", about {format_duration(chief.eta_seconds, parts=1)} left"
    elif chief.steps_eta_seconds is not None:
        known += f", about {format_duration(chief.steps_eta_seconds, parts=1)} to step {chief.progress.steps}"
    late = f"{listed(behind)} {'is' if len(behind) == 1 else 'are'} behind" if behind else ""
    parts = [part for part in (known, late) if part]
    return f"run {run}: {'; '.join(parts)}" if parts else ""


def epoch_cell(replica_progress: ReplicaProgress) -> str:
    """Return `3/10`, or `3` if the total is not known."""
    return _of(replica_progress.progress.epoch, replica_progress.progress.epochs)


def step_cell(replica_progress: ReplicaProgress) -> str:
    """Return `20/100`, marked if the replica is behind the others."""
    return f"{_step(replica_progress)} (behind)".strip() if replica_progress.is_behind else _step(replica_progress)


def spell_loss(replica_progress: ReplicaProgress) -> str:
    """Return the last loss with four significant digits."""
    loss = replica_progress.progress.loss
    return "" if loss is None else f"{loss:.4g}"


def eta_cell(replica_progress: ReplicaProgress) -> str:
    """Return `3m`, or `12s to step 100` if only that is known."""
    if replica_progress.eta_seconds is not None:
        return format_duration(replica_progress.eta_seconds)
    if replica_progress.steps_eta_seconds is not None:
        return f"{format_duration(replica_progress.steps_eta_seconds)} to step {replica_progress.progress.steps}"
    return ""


def progress_data(replica_progress: ReplicaProgress | None) -> dict[str, object]:
    """Return progress as JSON data; a loss that is not finite is a string, one that is not known None."""
    if replica_progress is None:
        words = "epoch", "epochs", "step", "steps", "loss", "steps_per_second", "eta_seconds", "steps_eta_seconds"
        return dict.fromkeys(words)
    progress = replica_progress.progress
    loss = progress.loss
    return {
        "epoch": progress.epoch,
        "epochs": progress.epochs,
        "step": progress.step,
        "steps": progress.steps,
        "loss": loss if loss is None or math.isfinite(loss) else str(loss),
        "steps_per_second": replica_progress.steps_per_second and float(f"{replica_progress.steps_per_second:.4g}"),
        "eta_seconds": _rounded(replica_progress.eta_seconds),
        "steps_eta_seconds": _rounded(replica_progress.steps_eta_seconds),
    }


def _step(replica_progress: ReplicaProgress) -> str:
    """Return the step; empty if the script reports its epochs as steps."""
    progress = replica_progress.progress
    says_more = progress.step != progress.epoch or progress.steps is not None
    return _of(progress.step, progress.steps) if says_more else ""


def _of(now: int | None, whole: int | None) -> str:
    if now is None:
        return ""
    return str(now) if whole is None else f"{now}/{whole}"


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)
