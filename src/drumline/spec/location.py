"""The location of a value in a file of another system."""

from __future__ import annotations

from drumline.errors import Problem
from drumline.record import Record
from drumline.spec.document import Path
from drumline.spec.messages import format_path
from drumline.words import printable


class Location(Record):
    """A location in a file: the line, and the path of the file's own keys."""

    source: str
    line: int
    path: Path = ()

    def problem(self, message: str) -> Problem:
        """Return a problem at this location."""
        return Problem(self.source, self.line, format_path(self.path), printable(message))
