"""Write marks, each with a time and the size of the log at that time, so that each line can be shown with its time."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from drumline.run.traces import LOG, MARK_FORMAT, MARKS
from drumline.runtime.private import open_file

MARK = struct.Struct(MARK_FORMAT)


class Marker:
    """Appends a mark to every log that has grown since the last call.

    A supervisor that `returned` does not know when the present output was written: its first marks have a negative
    time. `writes` is false if the engine records the times of lines itself.
    """

    def __init__(self, *, returned: bool = False, writes: bool = True) -> None:
        self._sizes: dict[Path, int] = {}
        self._late = returned
        self._writes = writes

    def mark(self, folders: Iterable[Path]) -> list[Path]:
        """Check each log once; return the folders of logs that have grown.

        If a mark cannot be written, no error is raised: the times of lines are less exact.
        """
        at, grown = time.time(), []
        for folder in folders:
            with suppress(OSError):
                size = os.stat(f"{folder}/{LOG}").st_size  # noqa: PTH116 - often, for each replica
                if size > self._sizes.get(folder, 0):
                    grown.append(folder)
                    if self._writes:
                        _append(folder / MARKS, -at if self._late else at, size)
                    self._sizes[folder] = size
        self._late = self._late and not self._sizes  # true until a log was found
        return grown


def _append(path: Path, at: float, size: int) -> None:
    file = open_file(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        whole = os.fstat(file).st_size // MARK.size * MARK.size
        os.ftruncate(file, whole)  # after a full disk the last mark may be incomplete
        os.write(file, MARK.pack(at, size))
    finally:
        os.close(file)
