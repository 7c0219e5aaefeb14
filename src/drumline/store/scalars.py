"""TensorBoard's files below a run's output folder: which there are, who wrote them, and their ends."""

from __future__ import annotations

import os
import re
from collections import deque

from drumline.record import Record
from drumline.run.scalars import Scalar, read_scalars
from drumline.runtime.private import open_regular

TAIL_BYTES = 1 << 16
BY_KERAS = "train"  # the folder in which its callback writes what is of the training
MOST_ENTRIES = 2_000  # are looked at, those of a folder before those below it

# When it was made, by which host and, but for old ones, by which process.
_NAME = re.compile(r"events\.out\.tfevents\.(?P<at>\d{10})\.(?P<host>.*?)(?:\.(?P<pid>\d+)\.\d+(?:\.v2)?)?")
# What is written there is of no training.
_APART = re.compile(r"(?i)(?:val|valid|validation|eval|evaluation|evaluator|test|testing)(?:[_-].*)?|eval_.*")


class EventFile(Record):
    """One file of events."""

    path: str
    folder: str  # the name of the one that it lies in
    made_at: int
    changed_at: float
    pid: int | None


def find_event_files(folder: str | os.PathLike[str], *, most: int = MOST_ENTRIES) -> list[EventFile]:
    """Those of trainings, the last changed first, as far as so many entries go; links to folders are not followed."""
    waiting, found = deque([os.fspath(folder)]), []
    while waiting and most > 0:
        place = waiting.popleft()
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    most -= 1
                    if most <= 0:
                        break
                    if (name := _NAME.fullmatch(entry.name)) and entry.is_file():  # who opens a pipe waits for ever
                        changed = entry.stat(follow_symlinks=False).st_mtime
                        pid = int(name["pid"]) if name["pid"] else None
                        found.append(EventFile(entry.path, os.path.basename(place), int(name["at"]), changed, pid))  # noqa: PTH119
                    elif entry.is_dir(follow_symlinks=False) and not _APART.fullmatch(entry.name):
                        waiting.append(entry.path)
        except OSError:
            continue  # gone, or not for us
    found.sort(key=lambda file: file.changed_at, reverse=True)
    return found


def last_scalars(file: EventFile) -> list[Scalar]:
    """The last scalars of a file, the newest first."""
    try:
        with open(file.path, "rb", opener=open_regular) as events:
            size = os.fstat(events.fileno()).st_size
            start = events.seek(max(0, size - TAIL_BYTES))
            return read_scalars(events.read(TAIL_BYTES), is_cut=start > 0)
    except OSError:
        return []
