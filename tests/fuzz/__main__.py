"""`python -m fuzz [--seconds N] [--seed N] [NAME…]`: try readers with random input, until the time is over.

The first seed of each error is printed; `python -m fuzz --seed N --cases 1 NAME` repeats the case.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from fuzz import files, histories, specs, wires  # noqa: F401 - each registers its cases
from fuzz.cases import CASES, attempt, silence

MOST_MEMORY_BYTES = 4 << 30


def main() -> int:
    parser = argparse.ArgumentParser(prog="fuzz")
    parser.add_argument("--seconds", type=float, default=60.0, help="for how long, of all readers together")
    parser.add_argument("--seed", type=int, default=int(time.time()) * 1000, help="where to begin")
    parser.add_argument("--cases", type=int, default=sys.maxsize, help="how many of each reader at most")
    parser.add_argument("names", nargs="*", choices=[*CASES, []], help="which readers")
    given = parser.parse_args()
    names = given.names or list(CASES)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))
    tried: Counter[str] = Counter()
    found: dict[str, int] = {}
    print(f"seed {given.seed}", flush=True)
    with TemporaryDirectory() as folder:
        os.environ["DRUMLINE_HOME"] = f"{folder}/home"
        os.chdir(folder)
        deadline = time.monotonic() + given.seconds
        number = 0
        while number < given.cases and time.monotonic() < deadline:
            for name in names:
                place = Path(folder, name)
                place.mkdir(exist_ok=True)
                try:
                    with silence():
                        attempt(name, given.seed + number, place)
                except BaseException as error:
                    if isinstance(error, KeyboardInterrupt):
                        raise
                    where = f"{name}: {_place(error)}"
                    if where not in found:
                        found[where] = given.seed + number
                        again = f"python -m fuzz --cases 1 --seed {given.seed + number} {name}"
                        print(f"FOUND {where}\n  {again}\n{ascii_(traceback.format_exc())[-1500:]}", flush=True)
                tried[name] += 1
            number += 1
    for name, count in tried.items():
        print(f"{count:9,} {name}")
    print(f"{sum(tried.values()):9,} cases from seed {given.seed}, {len(found)} errors")
    return 1 if found else 0


def ascii_(text: str) -> str:
    """Return the text in ASCII, with escapes."""
    return text.encode("ascii", "backslashreplace").decode()


def _place(error: BaseException) -> str:
    """Return the place of an error, so that each is printed once."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/drumline/" in frame.filename]
    last = frames[-1] if frames else traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {Path(last.filename).name}:{last.lineno}"


if __name__ == "__main__":
    sys.exit(main())
