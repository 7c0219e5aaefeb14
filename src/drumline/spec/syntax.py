"""Explain syntax errors of the YAML library."""

from __future__ import annotations

import re

from drumline.record import Record

ESCAPE = r"a `\` in double quotes that begins no known escape; use single quotes"

# Patterns for the messages of the loaders with and without libyaml, whether the line where the construct began is
# reported (True) or the line of the error, and the explanation.
_MEANINGS = (
    (r"end of stream.* quoted", True, "the quote that opens here is never closed"),
    (r"',' or '\]'", True, "the `[` here is never closed, or a text inside it needs quotes"),
    (r"',' or '\}'", True, "the `{` here is never closed, or a text inside it needs quotes"),
    (r"escape", False, ESCAPE),
    (r"alphabetic or numeric", False, "a text that begins with `*` or `&` needs quotes"),
    (r"could not find expected ':'", True, "a key without its `:`, or a text that is indented too little"),
    (r"values are not allowed", False, "this `:` does not belong to a key; check the indentation and quotes"),
    (r"entries are not allowed", False, "a list cannot begin in the line of its key; put it on lines of its own"),
    (r"node content", False, "a text that begins with a bracket or a comma needs quotes"),
    (
        r"expected (key|'-' indicator|<block end>|'?<document start>)",
        False,
        "this does not fit the lines above; check indentation and quotes",
    ),
)


class Position(Record):
    """A position in a text; both numbers start at 0."""

    line: int
    column: int


def explain_syntax(trouble: str, *, noticed: Position, began: Position | None, text: str) -> tuple[int, str]:
    """Return the line and an explanation of a syntax error."""
    line, meaning = noticed.line, trouble
    if re.search("cannot start any token|tab character", trouble):
        # YAML and Python break lines alike, except at control characters, which were refused before.
        char = text.splitlines()[noticed.line][noticed.column]
        meaning = f"a text that begins with {char} needs quotes"
        if char == "\t":
            meaning = "a tab where only spaces may indent; replace it by spaces"
    else:
        for pattern, from_its_beginning, words in _MEANINGS:
            if re.search(pattern, trouble):
                line = began.line if began and from_its_beginning else noticed.line
                meaning = words
                break
    return line + 1, f"not valid YAML: {meaning}"
