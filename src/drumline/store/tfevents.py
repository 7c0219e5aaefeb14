"""What TensorBoard can show of a run: files of events below its output folder."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator

_EVENTS = "events.out.tfevents."
MOST_ENTRIES = 5_000  # a script writes its summaries before so many other files


def has_summaries(folder: str | os.PathLike[str], *, most: int = MOST_ENTRIES) -> bool:
    """Return whether there are files of events among the first entries below a folder, at most so many."""
    return any(_EVENTS in entry.name for entry in walk(folder, most))


def walk(
    folder: str | os.PathLike[str], most: int, skips: Callable[[str], object] = lambda _: False
) -> Iterator[os.DirEntry[str]]:
    """Yield at most so many entries below a folder, those of a folder before those below it.

    Links to folders are not followed, nor are folders with names for which `skips` is true.
    What cannot be read is left out.
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
