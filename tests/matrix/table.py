"""The page with what came of each cell: a table for each line, a row for each replica and phase."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from matrix.cells import FAULTS, LINES, PHASES, SUPERVISOR, SUPERVISOR_KILL, Cell, why_not
from matrix.trial import Result

MARK = "<!-- From here on this page is written by `make matrix`. -->"


def write_page(page: Path, results: Sequence[Result], when: str) -> None:
    """Write the tables anew; what stands above them stays."""
    above, mark, _ = page.read_text("utf-8").partition(MARK)
    assert mark, f"{page} has no place for the tables"
    page.write_text("\n".join((f"{above}{MARK}", "", *lines(results, when))) + "\n", "utf-8")


def lines(results: Sequence[Result], when: str) -> Iterator[str]:
    """The tables, and what was wrong."""
    found = {result.cell: result for result in results}
    wrong = [result for result in results if result.problems]
    skipped = sum(bool(result.skipped) for result in results)
    seconds = sum(result.seconds for result in results)
    yield f"## Result of {when}"
    yield ""
    yield (
        f"{len(results)} cells, {len(results) - len(wrong) - skipped} as they have to be, {len(wrong)} wrong,"
        f" {skipped} not tried; {seconds:.0f} s of runs."
    )
    for line in LINES:
        yield ""
        yield f"### {LINE_WORDS[line]}"
        yield ""
        yield from table(line, found)
    for result in wrong:
        yield ""
        yield f"**{result.cell}**: {'; '.join(result.problems)}".replace("|", "\\|")


LINE_WORDS = {
    "mirrored": "Mirrored: a chief, a worker, an evaluator",
    "ps": "Parameter servers: a chief, a worker, a ps, an evaluator",
}


def table(line: str, found: dict[Cell, Result]) -> Iterator[str]:
    yield f"| who | when | {' | '.join(FAULTS)} |"
    yield f"|---|---|{'---|' * len(FAULTS)}"
    for role in LINES[line]:
        for phase in PHASES:
            cells = [Cell(line, role, phase, fault) for fault in FAULTS]
            if not all(map(why_not, cells)):
                yield f"| {role} | {phase} | {' | '.join(word(found.get(cell)) for cell in cells)} |"
    yield ""
    words = [f"{phase}: {word(found.get(Cell(line, SUPERVISOR, phase, SUPERVISOR_KILL)))}" for phase in PHASES]
    yield f"KILL to the supervisor, and another that takes the run up: {'; '.join(words)}."


def word(result: Result | None) -> str:
    """What came of a cell, in a word or two."""
    if result is None:
        return ""
    if result.skipped:
        return "not tried"
    if result.problems:
        return "**wrong**"
    expected = result.expected
    if expected.phase == "FAILED":
        return "fails"
    if not expected.unit:
        return "goes on" if expected.trained else "is done"
    return f"{expected.unit}, step {expected.resumes_at[0]}" if expected.resumes_at else expected.unit
