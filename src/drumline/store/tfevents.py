"""Find files that TensorBoard can show: event files below the output folder of a run."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator

_EVENTS = "events.out.tfevents."
MOST_ENTRIES = 5_000  # entries that are examined; a script writes its first event file before so many other files


def has_summaries(folder: str | os.PathLike[str], *, most: int = MOST_ENTRIES) -> bool:
    """Return whether there is an event file among the first `most` entries below a folder."""
    return any(_EVENTS in entry.name for entry in walk(folder, most))


def walk(
    folder: str | os.PathLike[str], most: int, skips: Callable[[str], object] = lambda _: False
) -> Iterator[os.DirEntry[str]]:
    """Yield at most `most` entries below a folder, breadth first.

    Links to folders are not followed. Folders with names for which `skips` is true, and folders that cannot be read,
    are not entered.
    """
    waiting = deque([os.fspath(folder)])
    while waiting:
        try:
            with os.scandir(waiting.popleft()) as entries:
                for entry in entries:
                    if most <= 0:
                        return
                    most -= 1
                    yield entry
                    if entry.is_dir(follow_symlinks=False) and not skips(entry.name):
                        waiting.append(entry.path)
        except OSError:
            continue
