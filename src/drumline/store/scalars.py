"""Find TensorBoard's files below the output folder of a run, and read their ends."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from drumline.record import Record
from drumline.run.scalars import Scalar, read_scalars
from drumline.store.logs import read_end
from drumline.store.tfevents import walk

TAIL_BYTES = 1 << 16
BY_KERAS = "train"  # the folder of training data in the Keras callback
MOST_ENTRIES = 2_000  # entries of folders that are examined

# A name has the time, the host and, except in old files, the pid of the process that created the file.
_NAME = re.compile(r"events\.out\.tfevents\.(?P<at>\d{10})\.(?P<host>.*?)(?:\.(?P<pid>\d+)\.\d+(?:\.v2)?)?")
# Folders of evaluations.
_APART = re.compile(r"(?i)(?:val|valid|validation|eval|evaluation|evaluator|test|testing)(?:[_-].*)?|eval_.*")


class EventFile(Record):
    """One event file of TensorBoard."""

    path: str
    folder: str  # the name of its folder
    made_at: int  # UTC, seconds; from its name
    changed_at: float  # UTC, seconds
    pid: int | None  # of the process that created it


def find_event_files(folder: str | os.PathLike[str], *, most: int = MOST_ENTRIES) -> list[EventFile]:
    """Return the event files of trainings among the first `most` entries below a folder, the last changed first."""
    found = []
    for entry in walk(folder, most, _APART.fullmatch):
        with suppress(OSError):
            if (name := _NAME.fullmatch(entry.name)) and entry.is_file():  # opening a pipe would block
                changed, pid = entry.stat(follow_symlinks=False).st_mtime, int(name["pid"]) if name["pid"] else None
                parent = os.path.basename(os.path.dirname(entry.path))  # noqa: PTH119, PTH120
                found.append(EventFile(entry.path, parent, int(name["at"]), changed, pid))
    found.sort(key=lambda file: file.changed_at, reverse=True)
    return found


def last_scalars(file: EventFile) -> list[Scalar]:
    """Return the last scalars of a file, newest first."""
    tail, start = read_end(Path(file.path), TAIL_BYTES)
    return read_scalars(tail, is_cut=start > 0)
