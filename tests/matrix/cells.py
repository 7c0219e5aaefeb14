"""The cells of the fault matrix: replica, phase and fault; and a selection of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product
from typing import NamedTuple

# The roles of each gang. In both the chief writes checkpoints, and an evaluator reads them.
GANGS = {"mirrored": ("chief", "worker", "evaluator"), "ps": ("chief", "worker", "ps", "evaluator")}
SUPERVISOR = "supervisor"

BEFORE, FIRST, MIDDLE, SAVING, AFTER = PHASES = (
    "before rendezvous",
    "first step",
    "mid-epoch",
    "checkpoint",
    "after success",
)
FAULTS = ("KILL", "STOP", "exit 0", "exit 1", "exit 137", "OOM", "network cut", "disk full")
SUPERVISOR_KILL = "supervisor KILL"
FROM_OUTSIDE = ("KILL", "STOP", "network cut", SUPERVISOR_KILL)


class Cell(NamedTuple):
    """One fault in one role and phase."""

    gang: str
    role: str
    phase: str
    fault: str

    def __str__(self) -> str:
        return f"{self.gang} {self.role}: {self.fault}, {self.phase}"

    @property
    def victim(self) -> str:
        """The replica with the fault, or the one that waits during a fault of the supervisor."""
        if self.role != SUPERVISOR:
            return f"{self.role}.0"
        return "worker.0" if self.phase == AFTER else "chief.0"


def all_cells() -> Iterator[Cell]:
    """Yield every possible cell."""
    for gang, roles in GANGS.items():
        for role, phase, fault in product(roles, PHASES, FAULTS):
            cell = Cell(gang, role, phase, fault)
            if why_impossible(cell) is None:
                yield cell
        yield from (Cell(gang, SUPERVISOR, phase, SUPERVISOR_KILL) for phase in PHASES)


def why_impossible(cell: Cell) -> str | None:
    """Return why a cell is impossible; None if it is possible."""
    if cell.phase == AFTER and cell.role == "chief":
        return "the chief has already ended"
    if cell.fault == "network cut" and cell.role == "evaluator":
        return "an evaluator has no peers"
    if cell.fault == "disk full" and cell.gang == "ps" and cell.role in ("worker", "ps"):
        return "workers and ps write nothing"
    if cell.fault == "disk full" and cell.phase not in (MIDDLE, SAVING):
        return "nothing is written then"
    return None


def choose(cells: Sequence[Cell], number: int) -> list[Cell]:
    """Return `number` cells with each role, phase and fault, in which most pairs of these occur; deterministic."""
    shown: set[str] = set()
    paired: set[tuple[str, str]] = set()
    chosen: list[Cell] = []
    while len(chosen) < min(number, len(cells)):
        best = max(
            (cell for cell in cells if cell not in chosen),
            key=lambda cell: (len(set(parts(cell)) - shown), len(pairs(cell) - paired)),
        )
        chosen.append(best)
        shown.update(parts(best))
        paired |= pairs(best)
    return chosen


def parts(cell: Cell) -> tuple[str, str, str]:
    """Return gang and role, phase, and fault."""
    return f"{cell.gang} {cell.role}", cell.phase, cell.fault


def pairs(cell: Cell) -> set[tuple[str, str]]:
    """Return the pairs of parts of a cell."""
    return set(combinations(parts(cell), 2))
