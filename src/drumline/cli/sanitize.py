"""Make the output of replicas safe for a terminal, in linear time for any input."""

from __future__ import annotations

import re
from collections.abc import Iterator

_CHUNK_BYTES = 1 << 16

# Control sequences: they move the cursor, ring the bell, or change the direction of text. The pattern starts with one
# set, so that the search is fast, and all repetitions are possessive, so that no input is read more than twice.
_CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069](?:"
    r"(?<=\x1b)\x1b*+(?:"
    r"(?P<colour>\[[0-9;:]{0,64}m)"
    r"|\[[0-?]*+[ -/]*+[@-~]?"  # another control sequence
    r"|[\]PX^_][^\x07\x1b\x9c\n]*+(?:\x07|\x1b\\|\x9c)?"  # a title, a link, the clipboard
    r"|[ -/]*+[0-~]?)"
    r"|(?<=\x9b)[0-?]*+[ -/]*+[@-~]?"  # the same sequence with a single character at its start
    r"|(?<=[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c\n]*+(?:\x07|\x1b\\|\x9c)?"
    r"|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f]*+)"  # a run is one match
)


def chunks(data: bytes) -> Iterator[bytes]:
    """Yield whole lines in chunks of about 64 KiB; a longer line is one chunk."""
    start = 0
    while start < len(data):
        end = data.find(b"\n", start + _CHUNK_BYTES - 1) + 1 or len(data)
        yield data[start:end]
        start = end


def last_states(data: bytes) -> bytes:
    """Return lines as a terminal would show them in the end: a carriage return overwrites a line."""
    data = data.replace(b"\r\n", b"\n")  # a line end, which is the most frequent use of a carriage return
    pieces, done = [], 0
    while (found := data.find(b"\r", done)) >= 0:
        start = data.rfind(b"\n", done, found) + 1 or done
        end = data.find(b"\n", found)
        end = len(data) if end < 0 else end
        pieces += [data[done:start], last_state(data[start:end])]
        done = end
    return b"".join((*pieces, data[done:]))


def last_state(line: bytes) -> bytes:
    """Return the last text of a line with carriage returns that is not blank."""
    last = len(line.rstrip())
    end = line.find(b"\r", last)
    return line[line.rfind(b"\r", 0, last) + 1 : len(line) if end < 0 else end] if last else b""


def sanitize(data: bytes) -> str:
    """Return lines without control sequences; colours are kept and end with their line.

    Works on characters, since bytes on both sides of a removed one could form a new character.
    """
    text = data.decode(errors="replace")
    text = _CONTROL.sub(lambda found: f"\x1b{found['colour']}" if found["colour"] else "", text)
    if "\x1b" not in text:
        return text
    return "\n".join(f"{line}\x1b[0m" if "\x1b" in line else line for line in text.split("\n"))


def plain(data: bytes) -> str:
    """Return the text of a line without colours and tabs."""
    return _CONTROL.sub("", data.decode(errors="replace")).replace("\t", " ")
