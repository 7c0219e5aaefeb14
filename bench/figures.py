"""The table of all figures: each with its peer, measured in the same run, its goal, and the command that measures it.

`make bench` sets DRUMLINE_FIGURES to a file to which every benchmark appends its figures, one JSON object per line;
`python -m bench.figures FILE` then prints `docs/figures.md`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from textwrap import fill
from typing import NamedTuple

HEAD = """# Figures

Written by `make bench`, not by hand. A ratio is drumline's figure divided by that of the peer, measured in the same
run, since machines are noisy; seconds are from one machine ({machine}), {day}.
Rows with the same command are from one run of it; other commands may have been run at another time, on another such
machine. A goal is the largest ratio that is accepted (≤), or the smallest (≥).

In the names, "on all" means on all workers; "first" is a launch without a warm process, and "following" one with it;
"up" means that the replicas run, and "over" that the command has ended. "To the card" is the time until
`drumline train` shows its report of a failure, and "to the prompt" the time until it exits. Percentages are shares of
one core.

| What | drumline | peer | ratio | goal | | command |
|---|---|---|---|---|---|---|
"""
MISSED = """
## Missed goals, and what takes the time

"""
# The reason for a figure, by a part of its name; shown if it misses its goal.
REASONS = {
    "until all are up": "Before the first replica is forked, `drumline train` starts Python (10 ms) and loads what"
    " reads a spec (35 to 45 ms), reads, checks and plans, and then forks the supervisor"
    " ([ADR 0004](adr/0004-one-launch-and-one-event-loop.md)). honcho reads one line of a Procfile instead.",
    "to disk": "Replicas write their logs themselves, as with the shell. The difference is the start of two commands,"
    " `train -d` and `wait`, and the times that the supervisor records beside the logs.",
    "torch-2: first step on all, following": "torch 2.15 imports `torch._dynamo`, 900 modules in 1.4 to 2.0 s, when a"
    " script makes its DistributedDataParallel or its first optimizer. A warm process imports `torch` and the modules"
    " of `warm.import`, and no others. The row torch-2-dynamo is the same script with `warm: {import:"
    " [torch._dynamo]}`, as in the torch template.",
    "500 tiny replicas": "drumline takes 10 ms of CPU time for each replica, beside the replica itself: half of it in"
    " the fork server and the keeper, which fork one after the other, and half in the supervisor, which makes the"
    " files of the replica, sends the order, and writes start and end to the journal. The shell forks"
    " once.",
    "1 worker": "One process with all cores should take the same time both ways.",
    "first step on all, first": "There is no warm process yet: one process imports TensorFlow, on one core most of the"
    " time, while by hand all workers import it at the same time, on all cores. If workers do not slow each other down"
    " (row `one alone` of the benchmark), a single import saves little unless there are many more workers than cores"
    " ([warm start](warm.md)).",
}


class Figure(NamedTuple):
    """A figure of drumline and of a peer, measured in the same run."""

    what: str
    ours: float
    theirs: float
    peer: str
    goal: float | None
    command: str
    unit: str = "s"
    at_least: bool = False

    @property
    def ratio(self) -> float:
        """Return the figure divided by that of the peer."""
        return self.ours / self.theirs

    @property
    def is_missed(self) -> bool:
        """Return whether there is a goal and it is not reached."""
        if self.goal is None:
            return False
        return round(self.ratio, 2) < self.goal if self.at_least else round(self.ratio, 2) > self.goal


def note(figure: Figure) -> None:
    """Record a figure if DRUMLINE_FIGURES is set."""
    if path := os.environ.get("DRUMLINE_FIGURES"):
        with Path(path).open("a") as file:
            file.write(json.dumps(figure) + "\n")


def write(figures: Sequence[Figure], machine: str, day: str) -> str:
    """Return the page."""
    text = HEAD.format(machine=machine, day=day) + "\n".join(map(_row, figures)) + "\n"
    missed = [figure for figure in figures if figure.is_missed]
    if missed:
        text += MISSED + "".join(f"{fill(_miss(each), 120, subsequent_indent='  ')}\n" for each in missed)
    return text


def _row(figure: Figure) -> str:
    goal = "" if figure.goal is None else f"{'≥' if figure.at_least else '≤'} {figure.goal:g}"
    mark = "" if figure.goal is None else "**missed**" if figure.is_missed else "reached"
    ours, theirs = (f"{value:,.{2 if value < 100 else 0}f} {figure.unit}" for value in (figure.ours, figure.theirs))
    return (
        f"| {figure.what} | {ours} | {figure.peer}: {theirs} | {figure.ratio:.2f} | {goal} | {mark} |"
        f" `{figure.command}` |"
    )


def _miss(figure: Figure) -> str:
    reason = next((reason for part, reason in REASONS.items() if part in figure.what), "The reason is not known yet.")
    return f"- **{figure.what}**: {figure.ratio:.2f}×. {reason}"


def main() -> None:
    (file,) = sys.argv[1:]
    found = [Figure(*json.loads(line)) for line in Path(file).read_text().splitlines()]
    figures = {figure.what: figure for figure in found}  # the later one of two with the same name
    machine = f"{os.cpu_count()} cores, {os.uname().sysname} on {os.uname().machine}"
    print(write(list(figures.values()), machine, f"{datetime.now(UTC):%Y-%m-%d}"), end="")


if __name__ == "__main__":
    main()
