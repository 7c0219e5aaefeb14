"""`make mutants`: how many small changes of the code do the unit tests notice?

Comparisons are negated and shifted by one, `and` and `or` are exchanged, `not` is dropped, bare conditions are negated,
numbers and booleans in functions are changed. A change that makes no difference is listed in `equivalent.txt`, with
the reason; every other one that no test notices is printed. Properties are tried as often as by `make quick`.

All of them take over an hour on a busy machine: `--sample 300` says how it stands, and `--again` tries what an earlier
output names, once there are more tests. The code in `engine/agent` runs as a program of its own, which no fork can
change.
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
    words.add_argument("--again", type=Path, help="try only those that were not noticed, from this earlier output")
    words.add_argument("--jobs", type=int, default=os.cpu_count())
    words.add_argument("--tests", nargs="*", help="paths of tests, instead of the usual ones")
    given = words.parse_args()
    known = read_equivalent()
    mutants = [each for each in all_mutants(given.module) if each.key not in known]
    if given.again:
        named = {line.strip() for line in given.again.read_text("utf-8").splitlines()}
        mutants = [each for each in mutants if each.key in named]
    if given.sample:
        mutants = sorted(random.Random(given.seed).sample(mutants, min(given.sample, len(mutants))))
    tests = Path(__file__).parents[1]
    usual = [*(str(tests / each) for each in TESTS), *(f"--ignore={tests / each}" for each in NOT_FOR_THIS)]
    tester = Tester(mutants, given.jobs, print_result)
    code = pytest.main(["-q", "-p", "no:cacheprovider", "-o", "timeout=0", *(given.tests or usual)], plugins=[tester])
    return int(code) or report(tester.results)


def all_mutants(modules: list[str]) -> list[Mutant]:
    """All mutants of the modules with one of these words in their path."""
    files = source_files(SOURCE, PACKAGES)
    wanted = [each for each in files if not modules or any(word in str(each) for word in modules)]
    return [mutant for path in wanted for mutant in find_mutants(path)]


def read_equivalent() -> dict[str, str]:
    """The mutants that make no difference, and why."""
    rows = (line.partition("  # ") for line in EQUIVALENT.read_text("utf-8").splitlines() if line[:1] not in ("", "#"))
    return {key.strip(): why for key, _, why in rows}


def print_result(result: Result) -> None:
    """Print a mutant that no test noticed."""
    if result.outcome != NOTICED:
        path = result.mutant.path.relative_to(SOURCE.parent)
        print(f"{path}:{result.mutant.line}: {result.outcome}\n    {result.mutant.key}", flush=True)


def report(results: list[Result]) -> int:
    """Print the share of each kind, of each package and of all; return 1 if the last is too small."""
    print_shares([(each.mutant.kind, each.outcome) for each in results])
    print()
    print_shares([(str(each.mutant.path.parent.relative_to(SOURCE)), each.outcome) for each in results])
    return 0 if print_shares([("all", each.outcome) for each in results]) >= ENOUGH else 1


def print_shares(outcomes: list[tuple[str, str]]) -> float:
    """Print what share of each group was noticed; return the share of all."""
    tried = Counter(group for group, _ in outcomes)
    noticed = Counter(group for group, outcome in outcomes if outcome == NOTICED)
    for group, count in sorted(tried.items()):
        print(f"{group:16} {noticed[group]:5} of {count:5} noticed ({noticed[group] / count:.1%})")
    return noticed.total() / max(1, tried.total())


if __name__ == "__main__":
    sys.exit(main())
