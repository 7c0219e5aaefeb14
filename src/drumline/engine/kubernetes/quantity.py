"""Amounts as Kubernetes writes them."""

from __future__ import annotations

import math
import re

_UNITS = {
    "": 1.0,
    **{unit: 1000.0**power for power, unit in enumerate("num", -3)},
    **{unit: 1000.0**power for power, unit in enumerate("kMGTPE", 1)},
    **{f"{unit}i": 1024.0**power for power, unit in enumerate("KMGTPE", 1)},
}

# With fewer digits than make a float infinite.
_QUANTITY = re.compile(r"([0-9]{1,64}(?:\.[0-9]{0,64})?|\.[0-9]{1,64})([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?")


def quantity(amount_bytes: int) -> str:
    """Bytes, exactly, with the largest unit that keeps them whole."""
    for power, unit in ((5, "Pi"), (4, "Ti"), (3, "Gi"), (2, "Mi"), (1, "Ki")):
        if amount_bytes and amount_bytes % 1024**power == 0:
            return f"{amount_bytes // 1024**power}{unit}"
    for power, unit in ((5, "P"), (4, "T"), (3, "G"), (2, "M"), (1, "k")):
        if amount_bytes and amount_bytes % 1000**power == 0:
            return f"{amount_bytes // 1000**power}{unit}"
    return str(amount_bytes)


def cores(cpus: float) -> str:
    """Cores, to the thousandth, rounded up."""
    thousandths = math.ceil(round(cpus * 1000, 6))
    return f"{thousandths}m" if thousandths % 1000 else str(thousandths // 1000)


def parse_quantity(text: object) -> float | None:
    """Read an amount as Kubernetes writes it, `500m` or `16Gi`; None for what is none."""
    found = _QUANTITY.fullmatch(text) if isinstance(text, str) else None
    if not found:
        return None
    number, unit = float(found[1]), found[2] or ""
    return number * _UNITS[unit] if unit in _UNITS else number * 10.0 ** int(unit[1:])
