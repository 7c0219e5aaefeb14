"""Amounts with a unit: memory in bytes, time in seconds."""

from __future__ import annotations

import re

BYTES_PATTERN = r"^[0-9]+(\.[0-9]+)? ?([kKMGTP]i?B?|B)$"
SECONDS_PATTERN = r"^[0-9]+(\.[0-9]+)? ?(ms|s|m|h|d)?$"

_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, None: 1}


def parse_bytes(text: str) -> int:
    """Read `16GiB` or `500MB`; raise ValueError with the sentence for the user."""
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text):
        raise ValueError(f"{text} of what? Memory needs a unit: write {text}GiB or {text}MiB")
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?([kKMGTP]?)(i?)B?", text)
    if not match or not (match[2] or text.endswith("B")) or (match[3] and not match[2]):
        raise ValueError(f'expected an amount of memory such as 16GiB, got "{text}"')
    amount = int(float(match[1]) * (1024 if match[3] else 1000) ** _POWERS[match[2].upper()])
    if amount < 1:
        raise ValueError("expected an amount of memory above 0")
    return amount


def format_bytes(amount: int) -> str:
    """Write an amount so that it reads back exactly, with the largest unit that allows it."""
    for exponent, unit in ((5, "P"), (4, "T"), (3, "G"), (2, "M"), (1, "K")):
        tenths = amount * 10
        if amount >= 1024**exponent and tenths % 1024**exponent == 0:
            whole, rest = divmod(tenths // 1024**exponent, 10)
            return f"{whole}.{rest}{unit}iB" if rest else f"{whole}{unit}iB"
    for exponent, unit in ((5, "P"), (4, "T"), (3, "G"), (2, "M"), (1, "k")):
        if amount >= 1000**exponent and amount % 1000**exponent == 0:
            return f"{amount // 1000**exponent}{unit}B"
    return f"{amount}B"


def parse_seconds(text: str) -> float:
    """Read `30s`, `5m` or `1h`, a bare number as seconds; raise ValueError with the sentence for the user."""
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?(ms|s|m|h|d)?", text)
    if not match:
        raise ValueError(f'expected a time such as 30s, 5m or 1h, got "{text}"')
    return float(match[1]) * _SECONDS[match[2]]


def format_seconds(seconds: float) -> str:
    """Write a length of time with the largest unit that keeps it whole."""
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds and seconds % length == 0:
            return f"{int(seconds / length)}{unit}"
    return f"{seconds:g}s"
