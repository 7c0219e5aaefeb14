"""A fake kubelet: it stores and sends the log of a container as the real one does.

Lines longer than a fragment are kept in parts, each with its time; `since` is compared with the time of each part; a
file that has grown too large is replaced by a new one, and only the new one is sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

FRAGMENT = 16
BEGAN_NS = 1_794_775_700 * 10**9


class Entry(NamedTuple):
    """A line, or a fragment of a long line."""

    at_ns: int
    data: bytes  # with its newline if it is the last fragment


class Kubelet:
    """The log of one container."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.written = b""

    def write(self, at_ns: int, line: bytes, *, ends: bool = True) -> None:
        """Append a line that the container has written."""
        self.written += line + (b"\n" if ends else b"")
        parts = [line[start : start + FRAGMENT] for start in range(0, len(line), FRAGMENT)] or [b""]
        for number, part in enumerate(parts):
            is_last = number == len(parts) - 1
            self.entries.append(Entry(at_ns + number, part + (b"\n" if is_last and ends else b"")))

    def rotate(self) -> None:
        """Start a new file; the content of the old file is not sent any more."""
        self.entries.clear()

    def send(self, since: str) -> bytes:
        """Return all lines since `since`, each after its time."""
        since_ns = int(datetime.fromisoformat(since).timestamp()) * 10**9 if since else 0
        return b"".join(self._lines(since_ns))

    def _lines(self, since_ns: int) -> Iterator[bytes]:
        is_new = True
        for entry in self.entries:
            if entry.at_ns >= since_ns:
                yield (spell(entry.at_ns) + b" " if is_new else b"") + entry.data
            is_new = entry.data.endswith(b"\n")


def spell(at_ns: int) -> bytes:
    """Return a time in the format of the kubelet."""
    seconds, fraction = divmod(at_ns, 10**9)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{fraction:09d}Z".encode()
