"""The cells of the fault matrix: who comes to harm, when, and how; and a few that stand for all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product
from typing import NamedTuple

# Who is in each line. In both the chief saves, and an evaluator looks at what it saved.
LINES = {"mirrored": ("chief", "worker", "evaluator"), "ps": ("chief", "worker", "ps", "evaluator")}
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
    """One harm."""

    line: str
    role: str
    phase: str
    fault: str

    def __str__(self) -> str:
        return f"{self.line} {self.role}: {self.fault}, {self.phase}"

    @property
    def victim(self) -> str:
        """Whose process it happens to, or who waits while it happens to the supervisor."""
        if self.role != SUPERVISOR:
            return f"{self.role}.0"
        return "worker.0" if self.phase == AFTER else "chief.0"


def all_cells() -> Iterator[Cell]:
    """Every cell that makes sense."""
    for line, roles in LINES.items():
        for role, phase, fault in product(roles, PHASES, FAULTS):
            cell = Cell(line, role, phase, fault)
            if why_not(cell) is None:
                yield cell
        yield from (Cell(line, SUPERVISOR, phase, SUPERVISOR_KILL) for phase in PHASES)


def why_not(cell: Cell) -> str | None:
    """Why a cell makes no sense, if it does not."""
    if cell.phase == AFTER and cell.role == "chief":
        return "the chief is gone by then"
    if cell.fault == "network cut" and cell.role == "evaluator":
        return "an evaluator speaks with nobody"
    if cell.fault == "disk full" and cell.line == "ps" and cell.role in ("worker", "ps"):
        return "who only serves writes nothing"
    if cell.fault == "disk full" and cell.phase not in (MIDDLE, SAVING):
        return "nothing is written then"
    return None


def choose(cells: Sequence[Cell], number: int) -> list[Cell]:
    """So many cells with each role, phase and fault, in which most pairs of these occur; always the same ones."""
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
    """Who, when and how."""
    return f"{cell.line} {cell.role}", cell.phase, cell.fault


def pairs(cell: Cell) -> set[tuple[str, str]]:
    """What a cell shows together."""
    return set(combinations(parts(cell), 2))
