"""How far a training is, in words, in cells of a table, and for programs; what is not known is left out."""

from __future__ import annotations

import math
from collections.abc import Sequence

from drumline.cli.text import span
from drumline.view.standing import Standing
from drumline.words import listed


def describe(standing: Standing) -> str:
    """`epoch 3/10, step 20/100, loss 0.31`."""
    parts = {"epoch": epoch_cell(standing), "step": _step(standing), "loss": spell_loss(standing)}
    return ", ".join(f"{word} {text}" for word, text in parts.items() if text)


def sum_up(run: str, chief: Standing, behind: Sequence[str]) -> str:
    """`run 4: epoch 2/3, step 120/400, loss 0.38, about 40s left; 4.worker.1 is behind`; empty if nothing is known."""
    known = describe(chief)
    if chief.eta_seconds is not None:
        known += f", about {span(chief.eta_seconds, parts=1)} left"
    elif chief.steps_eta_seconds is not None:
        known += f", about {span(chief.steps_eta_seconds, parts=1)} to step {chief.progress.steps}"
    late = f"{listed(behind)} {'is' if len(behind) == 1 else 'are'} behind" if behind else ""
    parts = [part for part in (known, late) if part]
    return f"run {run}: {'; '.join(parts)}" if parts else ""


def epoch_cell(standing: Standing) -> str:
    """`3/10`, or `3` of nobody knows how many."""
    return _of(standing.progress.epoch, standing.progress.epochs)


def step_cell(standing: Standing) -> str:
    """`20/100`, and whether others are well ahead."""
    return f"{_step(standing)} (behind)".strip() if standing.is_behind else _step(standing)


def spell_loss(standing: Standing) -> str:
    """The last loss, with four digits that count."""
    loss = standing.progress.loss
    return "" if loss is None else f"{loss:.4g}"


def eta_cell(standing: Standing) -> str:
    """`3m`; `12s to step 100` where that is all that is known."""
    if standing.eta_seconds is not None:
        return span(standing.eta_seconds)
    if standing.steps_eta_seconds is not None:
        return f"{span(standing.steps_eta_seconds)} to step {standing.progress.steps}"
    return ""


def progress_data(standing: Standing | None) -> dict[str, object]:
    """What JSON knows; a loss that is no number is a word, as null is a loss that is not known."""
    if standing is None:
        words = "epoch", "epochs", "step", "steps", "loss", "steps_per_second", "eta_seconds", "steps_eta_seconds"
        return dict.fromkeys(words)
    progress = standing.progress
    loss = progress.loss
    return {
        "epoch": progress.epoch,
        "epochs": progress.epochs,
        "step": progress.step,
        "steps": progress.steps,
        "loss": loss if loss is None or math.isfinite(loss) else str(loss),
        "steps_per_second": standing.steps_per_second and float(f"{standing.steps_per_second:.4g}"),
        "eta_seconds": _rounded(standing.eta_seconds),
        "steps_eta_seconds": _rounded(standing.steps_eta_seconds),
    }


def _step(standing: Standing) -> str:
    """A script that reports its epochs as steps has said no more than its epoch."""
    progress = standing.progress
    says_more = progress.step != progress.epoch or progress.steps is not None
    return _of(progress.step, progress.steps) if says_more else ""


def _of(now: int | None, whole: int | None) -> str:
    if now is None:
        return ""
    return str(now) if whole is None else f"{now}/{whole}"


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)
