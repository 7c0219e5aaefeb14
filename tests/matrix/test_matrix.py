"""The fault matrix: the selection of its cells, and real runs of the selected ones."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from drumline.run.state import Phase
from matrix.cells import FAULTS, GANGS, PHASES, SUPERVISOR_KILL, all_cells, choose, pairs
from matrix.oracle import expect
from matrix.testbed import LocalMatrixTestBed
from matrix.trial import try_cell

CELLS = list(all_cells())
CHOSEN = choose(CELLS, 25)
AT_A_TIME = 3


def test_every_role_phase_and_fault_is_in_the_matrix() -> None:
    assert len(set(CELLS)) == len(CELLS)
    assert {(cell.gang, cell.role) for cell in CELLS} >= {(gang, role) for gang in GANGS for role in GANGS[gang]}
    assert {cell.phase for cell in CELLS} == set(PHASES)
    assert {cell.fault for cell in CELLS} == {*FAULTS, SUPERVISOR_KILL}


def test_the_chosen_cells_have_each_role_phase_and_fault_and_most_pairs() -> None:
    assert len(set(CHOSEN)) == len(CHOSEN) == 25
    for part in ("gang", "role", "phase", "fault"):
        assert {getattr(cell, part) for cell in CHOSEN} == {getattr(cell, part) for cell in CELLS}
    chosen, every = ({pair for cell in cells for pair in pairs(cell)} for cells in (CHOSEN, CELLS))
    assert len(chosen) >= len(every) / 2


def test_cells_that_must_fail_have_an_expected_cause_and_cells_that_continue_have_none() -> None:
    for cell in CELLS:
        expected = expect(cell)
        assert bool(expected.named) == bool(expected.unit or expected.phase is Phase.FAILED), cell
        assert bool(expected.named) == bool(expected.failures), cell


def test_the_chosen_cells_have_the_expected_result(tmp_path: Path) -> None:
    testbed = LocalMatrixTestBed(tmp_path / "workspace")
    try:
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            results = list(pool.map(lambda cell: try_cell(testbed, cell), CHOSEN))
    finally:
        testbed.close()
    wrong = {str(result.cell): (result.problems, result.seen) for result in results if result.problems}
    assert not wrong
