"""What TensorBoard can show of a run: files of events below its output folder."""

from __future__ import annotations

import os
from collections import deque

_EVENTS = "events.out.tfevents."
# So many entries are looked at, those of a folder before those below it: who writes summaries writes them before that.
MOST_ENTRIES = 5_000


def has_summaries(folder: str | os.PathLike[str], *, most: int = MOST_ENTRIES) -> bool:
    """Whether there are any, as far as so many entries tell; links to other folders are not followed."""
    waiting = deque([os.fspath(folder)])
    while waiting:
        try:
            with os.scandir(waiting.popleft()) as entries:
                for entry in entries:
                    if _EVENTS in entry.name:
                        return True
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    most -= 1
                    if most <= 0:
                        return False
        except OSError:
            continue  # it is not there yet, or gone, or not for us
    return False
