"""Whether a file may be in a dialect: a look at its bytes, so that only who has such a file pays for reading it."""

from __future__ import annotations

import re

# What no spec of ours has; looked for without a pattern, which would have to be compiled for everybody.
_SIGNS = (b"\ntrain:", b'"train"', b"'train'", b"apiVersion")


def may_be_foreign(data: bytes) -> bool:
    """Whether a closer look is worth it."""
    return data.startswith(b"train:") or any(sign in data for sign in _SIGNS) or is_template(data)


def is_template(data: bytes) -> bool:
    """Whether a file is a Jinja template: statements where lines begin, and not in the middle of a spec of ours."""
    if b"{%" not in data and b"{#" not in data:
        return False
    begins = re.search(rb"^[ \t]*\{(%[-+]?[ \t]*[a-z]|#)", data, re.MULTILINE)
    return begins is not None and not re.search(rb"^(project|run)[ \t]*:", data, re.MULTILINE)
