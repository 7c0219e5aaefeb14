"""The page with the result of each cell: a table for each gang, a row for each role and phase."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from matrix.cells import FAULTS, GANGS, PHASES, SUPERVISOR, SUPERVISOR_KILL, Cell, why_impossible
from matrix.trial import Result

MARK = "<!-- From here on this page is written by `make matrix`. -->"


def write_page(page: Path, results: Sequence[Result], when: str) -> None:
    """Write the tables; the text above them is kept."""
    above, mark, _ = page.read_text("utf-8").partition(MARK)
    assert mark, f"{page} has no place for the tables"
    page.write_text("\n".join((f"{above}{MARK}", "", *lines(results, when))) + "\n", "utf-8")


def lines(results: Sequence[Result], when: str) -> Iterator[str]:
    """Yield the lines of the tables, and of the wrong results."""
    found = {result.cell: result for result in results}
    wrong = [result for result in results if result.problems]
    skipped = sum(bool(result.skipped) for result in results)
    seconds = sum(result.seconds for result in results)
    yield f"## Result of {when}"
    yield ""
    yield (
        f"{len(results)} cells, {len(results) - len(wrong) - skipped} as expected, {len(wrong)} wrong,"
        f" {skipped} skipped; {seconds:.0f} s of runs."
    )
    for gang in GANGS:
        yield ""
        yield f"### {TITLES[gang]}"
        yield ""
        yield from table(gang, found)
    for result in wrong:
        yield ""
        yield f"**{result.cell}**: {'; '.join(result.problems)}".replace("|", "\\|")


TITLES = {
    "mirrored": "Mirrored: a chief, a worker, an evaluator",
    "ps": "Parameter servers: a chief, a worker, a ps, an evaluator",
}


def table(gang: str, found: dict[Cell, Result]) -> Iterator[str]:
    yield f"| role | phase | {' | '.join(FAULTS)} |"
    yield f"|---|---|{'---|' * len(FAULTS)}"
    for role in GANGS[gang]:
        for phase in PHASES:
            cells = [Cell(gang, role, phase, fault) for fault in FAULTS]
            if not all(map(why_impossible, cells)):
                yield f"| {role} | {phase} | {' | '.join(word(found.get(cell)) for cell in cells)} |"
    yield ""
    words = [f"{phase}: {word(found.get(Cell(gang, SUPERVISOR, phase, SUPERVISOR_KILL)))}" for phase in PHASES]
    yield f"KILL to the supervisor, and a new supervisor for the run: {'; '.join(words)}."


def word(result: Result | None) -> str:
    """Return the result of a cell in a few words."""
    if result is None:
        return ""
    if result.skipped:
        return "skipped"
    if result.problems:
        return "**wrong**"
    expected = result.expected
    if expected.phase == "FAILED":
        return "fails"
    if not expected.unit:
        return "goes on" if expected.trained else "is done"
    return f"{expected.unit}, step {expected.resumes_at[0]}" if expected.resumes_at else expected.unit
