"""Parse and format amounts with a unit: memory, time, and Kubernetes quantities."""

from __future__ import annotations

import re
from math import inf

BYTES_PATTERN = r"^([0-9]{1,19}(?:\.[0-9]{1,9})?) ?(?:([kKMGTP])(i?)B?|B)$"
SECONDS_PATTERN = r"^([0-9]{1,10}(?:\.[0-9]{1,9})?) ?(ms|s|m|h|d)?$"
SECONDS_OR_NEVER_PATTERN = rf"{SECONDS_PATTERN}|^never$"

_MOST_BYTES = 1024**6
_MOST_SECONDS = 36_500 * 86_400
_POWERS = {None: 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_MILLISECONDS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, None: 1000}

_KUBERNETES_UNITS = {
    "": 1.0,
    **{unit: 1000.0**power for power, unit in enumerate("num", -3)},
    **{unit: 1000.0**power for power, unit in enumerate("kMGTPE", 1)},
    **{f"{unit}i": 1024.0**power for power, unit in enumerate("KMGTPE", 1)},
}
# The number of digits is limited, so that the float is finite.
_KUBERNETES_QUANTITY = re.compile(
    r"([0-9]{1,64}(?:\.[0-9]{0,64})?|\.[0-9]{1,64})([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?"
)


def parse_bytes(text: str) -> int:
    """Read `16GiB` or `500MB`; raise ValueError with what was expected instead."""
    if re.fullmatch(r"[0-9]{1,19}(\.[0-9]{1,9})?", text):
        raise ValueError(f"memory with a unit, such as {text}GiB or {text}MiB")
    match = re.fullmatch(BYTES_PATTERN, text)
    if not match:
        raise ValueError("an amount of memory such as 16GiB or 500MB")
    power = _POWERS[match[2] and match[2].upper()]
    amount = int(_billionths(match[1]) * (1024 if match[3] else 1000) ** power // 10**9)
    if not 1 <= amount <= _MOST_BYTES:
        raise ValueError("an amount of memory from 1B to 1024PiB")
    return amount


def format_bytes(amount: int) -> str:
    """Return an amount that parses back exactly, in the unit with the smallest number."""
    tenths, unit = amount * 10, "B"
    for step, units in ((1024, ("KiB", "MiB", "GiB", "TiB", "PiB")), (1000, ("kB", "MB", "GB", "TB", "PB"))):
        for power, name in enumerate(units, 1):
            number, rest = divmod(amount * 10, step**power)
            if not rest and 10 <= number < tenths:
                tenths, unit = number, name
    whole, tenth = divmod(tenths, 10)
    return f"{whole}.{tenth}{unit}" if tenth else f"{whole}{unit}"


def parse_seconds(text: str) -> float:
    """Read `30s`, `5m` or `1h`, exact to a millisecond; a number without a unit is in seconds.

    Raise ValueError with what was expected instead.
    """
    match = re.fullmatch(SECONDS_PATTERN, text)
    if not match:
        raise ValueError("a time such as 30s, 5m or 1h")
    seconds = (_billionths(match[1]) * _MILLISECONDS[match[2]] + 10**9 // 2) // 10**9 / 1000
    if seconds > _MOST_SECONDS:
        raise ValueError("a time of at most 36500d")
    return seconds


def parse_seconds_or_never(text: str) -> float:
    """Read a time as `parse_seconds` does, or `never`, which is infinite; raise ValueError as `parse_seconds` does."""
    if text == "never":
        return inf
    try:
        return parse_seconds(text)
    except ValueError as error:
        raise ValueError(f"{error}, or never") from None


def format_seconds(seconds: float) -> str:
    """Return a time that parses back exactly, in the largest unit that divides it."""
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds and seconds % length == 0:
            return f"{int(seconds / length)}{unit}"
    return f"{seconds:.3f}".rstrip("0").rstrip(".") + "s"


def parse_quantity(text: object) -> float | None:
    """Parse a Kubernetes quantity such as `500m` or `16Gi`; None for anything else."""
    found = _KUBERNETES_QUANTITY.fullmatch(text) if isinstance(text, str) else None
    if not found:
        return None
    number, unit = float(found[1]), found[2] or ""
    return number * _KUBERNETES_UNITS[unit] if unit in _KUBERNETES_UNITS else number * 10.0 ** int(unit[1:])


def _billionths(number: str) -> int:
    """Return a number with at most nine decimals, exactly, in billionths."""
    whole, _, decimals = number.partition(".")
    return int(whole + decimals.ljust(9, "0"))
