"""Format numbers, sizes, durations, lists and texts for display."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_LONGEST_SECONDS = 1e15


def count(number: int, noun: str) -> str:
    """Return a number with its noun: `1 worker`, `3 workers`, `2 ps`."""
    return f"{number:,} {noun}" if number == 1 or noun.endswith("s") else f"{number:,} {noun}s"


def size(amount: int) -> str:
    """Return a number of bytes in binary units, with one decimal: `512.0 MiB`, `1.5 GiB`."""
    for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if amount >= 1 << power:
            return f"{amount / (1 << power):.1f} {unit}"
    return f"{amount} B"


def decimal_size(amount: int) -> str:
    """Return a number of bytes in decimal units, with one decimal: `5.7 MB`, `12.0 kB`."""
    for unit, whole in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if amount >= whole:
            return f"{amount / whole:.1f} {unit}"
    return count(amount, "byte")


def listed(words: Sequence[str]) -> str:
    """Return words as a list in a sentence: `a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def clip(text: str, longest: int) -> str:
    """Return a text, cut to `longest` characters; the last character of a text that was cut is `…`."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def describe_os_error(error: OSError) -> str:
    """Return the file name, if there is one, and the message of an OSError: `/tmp/a: Permission denied`."""
    what = f"{printable(str(error.filename))}: " if error.filename is not None else ""
    return f"{what}{error.strerror or error}"


def printable(text: str) -> str:
    """Return a text in one line, with control characters escaped."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def nearest(word: str, known: Iterable[str], *, alike: float = 0.6) -> str | None:
    """Return the known word that is most similar to `word`; None if none is similar enough.

    `alike` is the smallest similarity that is accepted, from 0 to 1.
    """
    import difflib  # noqa: PLC0415 - every command imports this module, and few need difflib

    return next(iter(difflib.get_close_matches(word[:60], list(known), n=1, cutoff=alike)), None)


def format_duration(seconds: float, *, parts: int = 2) -> str:
    """Return a duration in its largest units, at most `parts` of them: `0.4s`, `12s`, `3m5s`, `2h`."""
    if 0 < seconds < 10 and parts > 1:
        return f"{seconds:.1f}s"
    if not seconds < _LONGEST_SECONDS:
        return "ever"  # also for NaN
    left, words = max(0, round(seconds)), []
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        number, left = divmod(left, length)
        if number:
            words.append(f"{number}{unit}")
        elif words:
            break
    return "".join(words[:parts]) or "0s"
