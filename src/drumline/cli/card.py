"""The failure card: why a run failed, as text behind a bar or as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

from drumline.cli.frame import BAR
from drumline.cli.hints import hint_for
from drumline.cli.progress import describe, progress_data
from drumline.cli.text import utc
from drumline.plan.types import ReplicaId
from drumline.run.failure import describe_end
from drumline.view.card import Card, LaterFailures
from drumline.words import clip, format_duration, printable

_NARROW = 40  # columns; below that, the terminal wraps the lines
_LONGEST = 4000  # characters of a line
_MAX_NAMES = 4
_LATE_START_SECONDS = 1.0  # a start may be recorded this long after the exit; more means that the clock was set back


def spell_card(run: str, card: Card, columns: int | None, *, is_correction: bool = False) -> list[str]:
    """Return the lines of a failure card, wrapped to a width; None is unlimited.

    `is_correction`: a card that was shown before named another cause.
    """
    hint = hint_for(card.cause, card.python)
    hints = [f"hint: {hint}"] if hint else []
    headline = f"Correction: {_headline(run, card)}" if is_correction else _headline(run, card)
    head = [headline, _facts(run, card), _corrected(run, card)]
    paragraphs = [head, list(card.lines), [_followers(run, card)], hints]
    return _behind_bar(paragraphs, columns)


def spell_end(run: str, card: Card, columns: int | None) -> list[str]:
    """Return lines about the ends of the other replicas, for a card that was shown before they had ended."""
    return _behind_bar([[_followers(run, card)]], columns)


def _behind_bar(paragraphs: Sequence[Sequence[str]], columns: int | None) -> list[str]:
    """Return the lines of paragraphs, wrapped, each with a bar before it and with empty lines between paragraphs."""
    lines: list[str] = []
    for paragraph in paragraphs:
        shown = [clip(printable(line), _LONGEST) for line in paragraph if line]
        lines += ["", *shown] if lines and shown else shown
    width = columns - 2 if columns and columns >= _NARROW else None
    return [f"{BAR} {piece}".rstrip() for line in lines for piece in _wrapped(line, width)]


def card_data(run: str, card: Card | None) -> dict[str, object] | None:
    """Return a failure card as JSON data."""
    if card is None:
        return None
    cause = card.cause
    return {
        "replica": _spell(run, cause.replica),
        "reason": cause.reason,
        "class": cause.failure,
        "exit_code": cause.exit.code,
        "signal": cause.exit.signal,
        "out_of_memory": cause.exit.out_of_memory,
        "message": card.words,
        "error": cause.said or None,
        "attempt": cause.attempt,
        "at": utc(card.at),
        "progress": {"replica": _spell(run, card.progress_of), **progress_data(card.progress)},
        "traceback": list(card.lines) if card.is_traceback else None,
        "last_lines": None if card.is_traceback else list(card.lines),
        "followed": [
            {"replicas": [f"{run}.{name}" for name in each.replicas], "message": each.said}
            for each in card.later_failures
        ],
        "stopped": [f"{run}.{name}" for name in card.stopped],
        "corrects": card.corrects
        and {
            "replica": _spell(run, card.corrects.replica),
            "reason": card.corrects.reason,
            "class": card.corrects.failure,
            "message": describe_end(card.corrects.exit, card.corrects.said),
        },
        "python": card.python and {"path": card.python[0], "reason": card.python[1]},
    }


def _headline(run: str, card: Card) -> str:
    name = card.cause.replica
    if name is None:
        return f"Run {run} failed: {card.words}"
    return f"Run {run} failed. First replica to {'exit' if card.cause.exit.ok else 'fail'}: {run}.{name}, {card.words}"


def _corrected(run: str, card: Card) -> str:
    """Return the cause that a card named before the other replicas had ended; empty without a correction."""
    if card.corrects is None:
        return ""
    name, words = _spell(run, card.corrects.replica), describe_end(card.corrects.exit, card.corrects.said)
    return f"named before the other replicas had ended: {f'{name}, ' if name else ''}{words}"


def _facts(run: str, card: Card) -> str:
    """Return `2026-11-15T07:23:46Z, 12s after its start, attempt 1, step 137/500, loss 0.31`."""
    facts = [utc(card.at) or ""]
    lasted = None if card.at is None or card.started_at is None else card.at - card.started_at
    if lasted is not None and lasted > -_LATE_START_SECONDS:
        facts.append(f"{format_duration(max(0.0, lasted))} after its start")
    facts.append(f"attempt {card.cause.attempt}")
    if far := describe(card.progress):
        of = "" if card.progress_of == card.cause.replica else f"{_spell(run, card.progress_of)} was at "
        facts.append(f"{of}{far}")
    return ", ".join(fact for fact in facts if fact)


def _followers(run: str, card: Card) -> str:
    """Return `4.worker.0, 4.worker.2 followed: connection reset by peer; 4.ps.0 was stopped`."""
    parts = [f"{_names(run, each.replicas)} {_how(each, card.cause.said)}" for each in card.later_failures]
    if card.stopped:
        parts.append(f"{_names(run, card.stopped)} {'was' if len(card.stopped) == 1 else 'were'} stopped")
    return "; ".join(parts)


def _how(followers: LaterFailures, said: str) -> str:
    """Return how replicas failed after the first one: for the same reason, for their own, or as a consequence."""
    if not followers.is_own:
        return f"followed: {followers.said}"
    return "failed in the same way" if followers.said == said else f"failed too: {followers.said}"


def _names(run: str, replicas: Sequence[ReplicaId]) -> str:
    """Return the ids of replicas; of many, the first ones and the number of the others."""
    more = f" and {len(replicas) - _MAX_NAMES} more" if len(replicas) > _MAX_NAMES else ""
    return ", ".join(f"{run}.{name}" for name in replicas[:_MAX_NAMES]) + more


def _spell(run: str, name: ReplicaId | None) -> str | None:
    return f"{run}.{name}" if name else None


def _wrapped(line: str, width: int | None) -> list[str]:
    """Return a line wrapped to a width; lines after the first are indented."""
    if width is None or len(line) <= width:
        return [line]
    indent = " " * min(len(line) - len(line.lstrip()) + 2, width // 2)
    return wrap(line, width, subsequent_indent=indent, break_on_hyphens=False, expand_tabs=False)
