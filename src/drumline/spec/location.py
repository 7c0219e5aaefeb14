"""Where a value of a spec was said, in a file that is written in a dialect."""

from __future__ import annotations

from drumline.errors import Problem
from drumline.record import Record
from drumline.spec.document import Path
from drumline.spec.messages import format_path
from drumline.words import printable


class Location(Record):
    """A place in a dialect's file: its line, and its path in the words of the dialect."""

    source: str
    line: int
    path: Path = ()

    def problem(self, message: str) -> Problem:
        """Say something about what stands there."""
        return Problem(self.source, self.line, format_path(self.path), printable(message))
