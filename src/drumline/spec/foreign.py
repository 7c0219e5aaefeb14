"""Whether a file may be in a dialect: a look at its bytes, so that only who has such a file pays for reading it."""

from __future__ import annotations

import re

# What no spec of ours has at the beginning of a line.
_OBJECTS = re.compile(rb"""^[ \t{]*["']?(train|apiVersion|kind)["']?[ \t]*:""", re.MULTILINE)
_STATEMENT = re.compile(rb"^[ \t]*\{(%[-+]?[ \t]*[a-z]|#)", re.MULTILINE)


def may_be_foreign(data: bytes) -> bool:
    """Whether a closer look is worth it."""
    return is_template(data) or _OBJECTS.search(data) is not None


def is_template(data: bytes) -> bool:
    """Whether a file is a Jinja template."""
    return _STATEMENT.search(data) is not None
