"""`make mutants`: how many small changes of the code do the unit tests notice?

Comparisons are negated and shifted by one, `and` and `or` are exchanged, `not` is dropped, bare conditions are negated,
numbers and booleans in functions are changed. A change that makes no difference is listed in `equivalent.txt`, with
the reason; every other one that no test notices is printed.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from collections import Counter
from pathlib import Path

import pytest

import drumline
from mutants.mutate import Mutant, find_mutants
from mutants.plugin import NOTICED, Result, Tester, source_files

SOURCE = Path(drumline.__file__).parent
PACKAGES = ("run", "plan", "plan/rendezvous", "engine")
TESTS = ("unit/run", "unit/plan", "unit/spec", "unit/view", "unit/store", "unit/supervise", "unit/load", "unit/engine")
NOT_FOR_THIS = ("unit/engine/kubernetes", "unit/engine/ssh", "unit/engine/project")  # slow, and about other code
EQUIVALENT = Path(__file__).with_name("equivalent.txt")
ENOUGH = 0.9


def main() -> int:
    """Try the mutants that are asked for; print which survive, and the share that is noticed."""
    words = argparse.ArgumentParser(prog="mutants", description=__doc__)
    words.add_argument("module", nargs="*", help="part of a path, such as run/pace; all modules if none is given")
    words.add_argument("--sample", type=int, help="try that many, chosen by chance")
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--jobs", type=int, default=os.cpu_count())
    words.add_argument("--tests", nargs="*", help="paths of tests, instead of the usual ones")
    given = words.parse_args()
    known = read_equivalent()
    mutants = [each for each in all_mutants(given.module) if each.key not in known]
    if given.sample:
        mutants = random.Random(given.seed).sample(mutants, min(given.sample, len(mutants)))
    tests = Path(__file__).parents[1]
    usual = [*(str(tests / each) for each in TESTS), *(f"--ignore={tests / each}" for each in NOT_FOR_THIS)]
    tester = Tester(mutants, given.jobs)
    code = pytest.main(["-q", "-p", "no:cacheprovider", "-o", "timeout=0", *(given.tests or usual)], plugins=[tester])
    return int(code) or report(tester.results)


def all_mutants(modules: list[str]) -> list[Mutant]:
    """All mutants of the modules whose path has one of these words."""
    files = source_files(SOURCE, PACKAGES)
    wanted = [each for each in files if not modules or any(word in str(each) for word in modules)]
    return [mutant for path in wanted for mutant in find_mutants(path)]


def read_equivalent() -> dict[str, str]:
    """The mutants that make no difference, and why."""
    rows = (line.partition("  # ") for line in EQUIVALENT.read_text("utf-8").splitlines() if line[:1] not in ("", "#"))
    return {key.strip(): why for key, _, why in rows}


def report(results: list[Result]) -> int:
    """Print what no test noticed, and the share that was; return 1 if that is too small."""
    kinds: Counter[str] = Counter()
    noticed: Counter[str] = Counter()
    for mutant, outcome in sorted(results, key=lambda each: (each.mutant.path, each.mutant.line)):
        kinds[mutant.kind] += 1
        noticed[mutant.kind] += outcome == NOTICED
        if outcome != NOTICED:
            print(f"{mutant.path}:{mutant.line}: {outcome}\n    {mutant.key}")
    for kind, count in sorted(kinds.items()):
        print(f"{kind:12} {noticed[kind]:5} of {count:5} noticed ({noticed[kind] / count:.0%})")
    share = noticed.total() / max(1, kinds.total())
    print(f"{'all':12} {noticed.total():5} of {kinds.total():5} noticed ({share:.1%})")
    return 0 if share >= ENOUGH else 1


if __name__ == "__main__":
    sys.exit(main())
