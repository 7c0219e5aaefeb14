"""The fault matrix: how its cells are chosen, and those that stand for all, tried for real."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from drumline.run.state import Phase
from matrix.cells import FAULTS, LINES, PHASES, SUPERVISOR_KILL, all_cells, choose, pairs
from matrix.oracle import expect
from matrix.testbed import LocalMatrixTestBed
from matrix.trial import try_cell

CELLS = list(all_cells())
FEW = choose(CELLS, 25)
AT_A_TIME = 3


def test_every_role_phase_and_fault_is_in_the_matrix() -> None:
    assert len(set(CELLS)) == len(CELLS)
    assert {(cell.line, cell.role) for cell in CELLS} >= {(line, role) for line in LINES for role in LINES[line]}
    assert {cell.phase for cell in CELLS} == set(PHASES)
    assert {cell.fault for cell in CELLS} == {*FAULTS, SUPERVISOR_KILL}


def test_the_few_that_stand_for_all_have_each_role_phase_and_fault_and_most_pairs() -> None:
    assert len(set(FEW)) == len(FEW) == 25
    for part in ("line", "role", "phase", "fault"):
        assert {getattr(cell, part) for cell in FEW} == {getattr(cell, part) for cell in CELLS}
    shown, there = ({pair for cell in cells for pair in pairs(cell)} for cells in (FEW, CELLS))
    assert len(shown) >= len(there) / 2


def test_a_run_that_must_not_finish_names_a_cause_and_one_that_continues_names_none() -> None:
    for cell in CELLS:
        expected = expect(cell)
        assert bool(expected.named) == bool(expected.unit or expected.phase is Phase.FAILED), cell
        assert bool(expected.named) == bool(expected.failures), cell


def test_what_stands_for_all_comes_to_what_it_has_to(tmp_path: Path) -> None:
    testbed = LocalMatrixTestBed(tmp_path / "workspace")
    try:
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            results = list(pool.map(lambda cell: try_cell(testbed, cell), FEW))
    finally:
        testbed.close()
    wrong = {str(result.cell): (result.problems, result.seen) for result in results if result.problems}
    assert not wrong
