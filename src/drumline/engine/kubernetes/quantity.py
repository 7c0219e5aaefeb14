"""Format amounts as Kubernetes quantities."""

from __future__ import annotations

import math


def quantity(amount_bytes: int) -> str:
    """Return bytes, exactly, in the largest unit that divides them."""
    for power, unit in ((5, "Pi"), (4, "Ti"), (3, "Gi"), (2, "Mi"), (1, "Ki")):
        if amount_bytes and amount_bytes % 1024**power == 0:
            return f"{amount_bytes // 1024**power}{unit}"
    for power, unit in ((5, "P"), (4, "T"), (3, "G"), (2, "M"), (1, "k")):
        if amount_bytes and amount_bytes % 1000**power == 0:
            return f"{amount_bytes // 1000**power}{unit}"
    return str(amount_bytes)


def cores(cpus: float) -> str:
    """Return cores, rounded up to thousandths."""
    thousandths = math.ceil(round(cpus * 1000, 6))
    return f"{thousandths}m" if thousandths % 1000 else str(thousandths // 1000)
