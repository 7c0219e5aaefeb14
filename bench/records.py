"""The cost of kinds of frozen values: to import, to define 150 of them, to make, change, compare and hash one.

Run as `python -m bench.records [TURNS]` from the checkout. Kinds take turns, each in a process of its own, and the
least CPU time of all turns counts, so that a busy machine blurs the figures little. docs/adr/0003 has the table.
"""

from __future__ import annotations

import subprocess
import sys
import time
import timeit
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any

KINDS = {
    "NamedTuple": ("from typing import NamedTuple", "class {}(NamedTuple):"),
    "dataclass": ("from dataclasses import dataclass", "@dataclass(frozen=True, slots=True)\nclass {}:"),
    "msgspec.Struct": ("import msgspec", "class {}(msgspec.Struct, frozen=True):"),
    "Record": ("from drumline.record import Record", "class {}(Record):"),
}
COLUMNS = ("import ms", "150 classes ms", "make ns", "by name ns", "replace ns", "equal ns", "hash ns", "read ns")
CLASSES = 150
CALLS = 2000
BODY = "\n role: str\n index: int\n name: str = ''\n code: int | None = None\n fatal: bool = False\n"


def main() -> None:
    if len(sys.argv) == 3:
        print(*measure(sys.argv[2]))
        return
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    least = {kind: [float("inf")] * len(COLUMNS) for kind in KINDS}
    for _ in range(turns):
        for kind in KINDS:
            command = [sys.executable, "-m", "bench.records", "--one", kind]
            done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[1])
            least[kind] = [min(pair) for pair in zip(least[kind], map(float, done.stdout.split()), strict=True)]
    print(f"| | {' | '.join(COLUMNS)} |\n|---|{'---:|' * len(COLUMNS)}")
    for kind, figures in least.items():
        milli, nano = figures[:2], figures[2:]
        shown = [*(f"{seconds * 1e3:.1f}" for seconds in milli), *(f"{seconds * 1e9:.0f}" for seconds in nano)]
        print(f"| {kind} | {' | '.join(shown)} |")


def measure(kind: str) -> list[float]:
    library, head = KINDS[kind]
    scope: dict[str, Any] = {"__name__": "__main__"}
    future = "from __future__ import annotations\n"
    bodies = [compile(f"{future}{head.format(f'Kind{n}')}{BODY}", kind, "exec") for n in range(CLASSES)]
    figures = [elapsed(lambda: exec(library, scope)), elapsed(lambda: define(bodies, scope))]
    made = scope["Kind0"]
    one, other = made("worker", 1, "a"), made("worker", 1, "a")
    calls: list[Callable[[], object]] = [
        lambda: made("worker", 1, "a"),
        lambda: made(role="worker", index=1, name="a"),
        replacing(one),
        lambda: one == other,
        lambda: hash(one),
        lambda: one.name,
    ]
    timers = (timeit.repeat(call, number=CALLS, repeat=5, timer=time.process_time) for call in calls)
    return [*figures, *(min(times) / CALLS for times in timers)]


def replacing(value: Any) -> Callable[[], object]:
    if hasattr(value, "_replace"):
        return lambda: value._replace(code=3)
    if hasattr(value, "replace"):
        return lambda: value.replace(code=3)
    library = "msgspec.structs" if hasattr(value, "__struct_fields__") else "dataclasses"
    replace = getattr(__import__(library, fromlist=["replace"]), "replace")  # noqa: B009
    return lambda: replace(value, code=3)


def define(bodies: list[CodeType], scope: dict[str, Any]) -> None:
    for body in bodies:
        exec(body, scope)


def elapsed(call: Callable[[], object]) -> float:
    before = time.process_time()
    call()
    return time.process_time() - before


if __name__ == "__main__":
    main()
