"""What a drumline shows of a store that was written by an older one: every run, by every command that reads it.

`python tests/stores/shown.py VERSION COMMAND...` writes it to tests/stores/VERSION/shown, one file per run.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

STORES = Path(__file__).parent
READERS = (
    ("status", "{}"),
    ("status", "{}", "-o", "json"),
    ("events", "{}"),
    ("events", "{}", "-o", "json"),
    ("logs", "{}"),
)
ENV = {"TERM": "dumb", "COLUMNS": "120", "TZ": "UTC"}
Call = Callable[[list[str]], tuple[int, str]]  # words of a command line, to its exit code and what it prints
LISTS = (("status", "-a", "-n", "0"), ("status", "-a", "-n", "0", "-o", "json"))
# What goes on with the clock: ages, and durations of a run that is not over.
_AGES = re.compile(r"[\w.]+ ago")
# What version 1 did not say: why an attempt ended before the next.
_RESTART = re.compile(r"attempt \d+ begins \(restart \d+ of \d+\): ")
_RESTARTS = re.compile(rf"^\[[^]]*\] \d+: {_RESTART.pattern}.*\n", re.MULTILINE)
_GOES_ON = re.compile(r'^State: +RUNNING|"state": "RUNNING"', re.MULTILINE)
_DURATIONS = (
    re.compile(r'(?<="duration_seconds": )[\d.]+|(?<="seconds": )[\d.]+|(?<="idle_seconds": )[\d.]+'),
    re.compile(r'(?<="productive": )[\d.]+|(?<=^Duration:).*|(?<=^Goodput:).*', re.MULTILINE),
    re.compile(r"(?<= RUNNING  [0-9:]{8}Z  )\S+ +"),
)


def unpack(version: str, home: Path) -> None:
    """Make a home of the store that this version wrote."""
    home.mkdir(mode=0o700)
    with tarfile.open(STORES / version / "store.tar.gz") as archive:
        archive.extractall(home, filter="fully_trusted")


def runs_of(home: Path) -> list[str]:
    """Return the ids of the runs in a home, in their order."""
    return sorted((path.name for path in (home / "runs").iterdir() if path.name.isdecimal()), key=int)


def show_run(call: Call, home: Path, run: str) -> str:
    """Return what every reader prints of a run."""
    return "\n".join(_show(call, home, [word.format(run) for word in words]) for words in READERS)


def show_list(call: Call, home: Path) -> str:
    """Return what the lists of all runs say, without their ages."""
    return "\n".join(_show(call, home, list(words)) for words in LISTS)


def _show(call: Call, home: Path, words: list[str]) -> str:
    code, said = call(words)
    if words[0] == "status" and words[-1] == "0":
        said = "\n".join(" | ".join(_without_age(line)) for line in said.splitlines()) + "\n"
    if words[0] == "events" and words[-1] == "json" and code == 0:
        said = _without_decisions(said)
    if words[0] == "events":
        said = _RESTARTS.sub("", said)
    said = _AGES.sub("TIME ago", said)
    for pattern in _DURATIONS if _GOES_ON.search(said) else ():
        said = pattern.sub("TIME ", said)
    return f"$ drumline {' '.join(words)}\n{said.replace(str(home), 'HOME')}exit code {code}\n"


def _without_decisions(said: str) -> str:
    """Return the events without what was decided upon them, which version 1 did not record, nor why a run restarts."""
    events = [{key: value for key, value in event.items() if key != "decisions"} for event in json.loads(said)]
    for event in events:
        follows = [sentence for sentence in event.pop("follows", ()) if not _RESTART.match(sentence)]
        event.update({"follows": follows} if follows else {})
    return json.dumps(events, indent=2, ensure_ascii=False) + "\n"


def _without_age(line: str) -> list[str]:
    """Return the cells of a row of the list without its age, and of a run that goes on without its duration."""
    cells = re.split(r"\s{2,}", line.strip())
    goes_on = len(cells) > 5 and cells[3] == "RUNNING"
    return [cell for number, cell in enumerate(cells) if number != 4 and not (goes_on and number == 5)]


def _call(command: Sequence[str], home: Path) -> Call:
    env = {name: value for name, value in os.environ.items() if not name.startswith("DRUMLINE_")}
    env |= {**ENV, "DRUMLINE_HOME": str(home)}

    def call(words: list[str]) -> tuple[int, str]:
        done = subprocess.run([*command, *words], env=env, capture_output=True, text=True, check=False, cwd=home.parent)
        return done.returncode, done.stdout + done.stderr

    return call


def main() -> None:
    """Write what a command shows."""
    version, *command = sys.argv[1:]
    folder = STORES / version / "shown"
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        home = Path(made, "home")
        unpack(version, home)
        for run in runs_of(home):
            (folder / f"{run}.txt").write_text(show_run(_call(command, home), home, run))
        (folder / "list.txt").write_text(show_list(_call(command, home), home))


if __name__ == "__main__":
    main()
