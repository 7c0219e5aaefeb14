"""Run the whole matrix, or the cells with all of the words in their names: `python -m matrix [WORDS]`."""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from matrix.cells import all_cells
from matrix.table import write_page
from matrix.testbed import LocalMatrixTestBed
from matrix.trial import Result, try_cell

AT_A_TIME = 2
PAGE = Path(__file__).parents[2] / "docs" / "matrix.md"


def main(words: list[str]) -> int:
    wanted = [cell for cell in all_cells() if all(word in str(cell) for word in words)]
    with TemporaryDirectory() as folder, ThreadPoolExecutor(AT_A_TIME) as pool:
        testbed = LocalMatrixTestBed(Path(folder) / "workspace")
        try:
            results = []
            for result in pool.map(lambda cell: try_cell(testbed, cell), wanted):
                results.append(result)
                tell(result)
        finally:
            testbed.close()
    if not words:
        write_page(PAGE, results, time.strftime("%Y-%m-%d", time.gmtime()))
    wrong = sum(bool(result.problems) for result in results)
    print(f"{len(results)} cells, {wrong} wrong, {sum(bool(result.skipped) for result in results)} skipped")
    return 1 if wrong else 0


def tell(result: Result) -> None:
    word = "skipped" if result.skipped else "WRONG" if result.problems else "ok"
    print(f"{word:9} {result.seconds:5.1f} s  {result.cell}: {result.skipped or result.seen}", flush=True)
    for problem in result.problems:
        print(f"          {problem}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
