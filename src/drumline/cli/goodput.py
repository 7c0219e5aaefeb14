"""The goodput of a run: which part of its time was productive, as text and as JSON."""

from __future__ import annotations

from drumline.cli.text import rounded
from drumline.run.goodput import Goodput
from drumline.words import count, format_duration

_LONG_SECONDS = 60.0  # a shorter run without a restart spends most of its time to start


def describe_goodput(goodput: Goodput | None) -> str:
    """Return `83 % productive (41s of 49s): 3.1s starting, 3.3s down; 1 restart lost 12 steps`.

    Return an empty text if no step can be read, or if the run is short and was not restarted.
    """
    if goodput is None or goodput.starting_seconds is None:
        return ""
    if not goodput.restarts and goodput.seconds < _LONG_SECONDS:
        return ""
    if goodput.productive_seconds is None or goodput.share is None:
        head = f"not known of {format_duration(goodput.seconds)}, since the time of the lost steps is not known"
    else:
        whole = f"{format_duration(goodput.productive_seconds)} of {format_duration(goodput.seconds)}"
        head = f"{goodput.share:.0%} productive ({whole})".replace("%", " %", 1)
    steps = f" ({count(goodput.recomputed_steps, 'step')})" if goodput.recomputed_steps else ""
    parts = {
        "waiting": goodput.waiting_seconds,
        "starting": goodput.starting_seconds,
        "evaluating": goodput.evaluating_seconds,
        "saving": goodput.saving_seconds,
        "without steps": goodput.idle_seconds,
        f"recomputed{steps}": goodput.recomputed_seconds,
        "down": goodput.down_seconds,
    }
    spent = ", ".join(
        f"{format_duration(seconds)} {word}" for word, seconds in parts.items() if seconds and seconds >= 0.05
    )
    return "; ".join(part for part in (f"{head}: {spent}" if spent else head, _restarts(goodput)) if part)


def goodput_data(goodput: Goodput | None) -> dict[str, object] | None:
    """Return goodput as JSON data."""
    if goodput is None:
        return None
    is_known = goodput.productive_seconds is not None
    return {
        "seconds": round(goodput.seconds, 3),
        "productive": None if goodput.share is None else round(goodput.share, 4),
        "productive_seconds": rounded(goodput.productive_seconds),
        "waiting_seconds": rounded(goodput.waiting_seconds),
        "starting_seconds": rounded(goodput.starting_seconds),
        "evaluating_seconds": rounded(goodput.evaluating_seconds) if is_known else None,
        "saving_seconds": rounded(goodput.saving_seconds) if is_known else None,
        "idle_seconds": rounded(goodput.idle_seconds) if is_known else None,
        "recomputed_seconds": rounded(goodput.recomputed_seconds),
        "down_seconds": rounded(goodput.down_seconds),
        "recomputed_steps": goodput.recomputed_steps,
        "restarts": [
            {
                "attempt": loss.attempt,
                "incarnation": loss.incarnation,
                "steps_lost": loss.steps,
                "epochs_lost": loss.epochs,
            }
            for loss in goodput.restarts
        ],
    }


def _restarts(goodput: Goodput) -> str:
    """Return `2 restarts lost 15 steps`, or only the number of restarts."""
    losses = goodput.restarts
    if not losses:
        return ""
    restarts = count(len(losses), "restart")
    for noun, known in (("step", [loss.steps for loss in losses]), ("epoch", [loss.epochs for loss in losses])):
        counted = [number for number in known if number is not None]
        if len(counted) == len(losses):
            return f"{restarts} lost {count(sum(counted), noun)}"
    return restarts
