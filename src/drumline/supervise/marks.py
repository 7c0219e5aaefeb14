"""Marks: by when which byte of a log was written, so that every line can be shown with its time."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from drumline.run.traces import LOG, MARKS

MARK = struct.Struct("<dQ")  # when (UTC, seconds), how many bytes there were by then


class Marker:
    """Appends a mark to every log that has grown since the last time."""

    def __init__(self) -> None:
        self._sizes: dict[Path, int] = {}

    def mark(self, folders: Iterable[Path]) -> None:
        """Look at each log once. A log whose mark cannot be written keeps its lines; only their time is less exact."""
        for folder in folders:
            with suppress(OSError):
                size = os.stat(folder / LOG).st_size  # noqa: PTH116
                if size > self._sizes.get(folder, 0):
                    self._sizes[folder] = size
                    with (folder / MARKS).open("ab") as marks:
                        marks.write(MARK.pack(time.time(), size))
