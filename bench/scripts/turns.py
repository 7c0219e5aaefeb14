"""Two trainings that take turns, so that changes of the machine's speed affect both alike."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

FOR_GOOD = b"x" * 4096


class Turns:
    """The turns of this process; without BENCH_TURNS every turn is its own.

    BENCH_TURNS names two pipes: this process reads its turns from the first, and gives turns to the other process by
    the second. The parent writes to the pipe of the process that begins; neither begins before both are there.
    """

    def __init__(self) -> None:
        named = os.environ.get("BENCH_TURNS")
        # Opened for reading and writing: so opening does not block, and the exit of the other process is no error.
        self.pipes = [os.open(path, os.O_RDWR) for path in named.split(":")] if named else []
        self._call(b"x")
        self._wait()

    @contextmanager
    def next(self) -> Iterator[None]:
        """Wait for the turn of this process, and give it to the other one afterwards."""
        self._wait()
        yield
        self._call(b"x")

    def leave(self) -> None:
        """Let the other process continue without turns."""
        self._call(FOR_GOOD)

    def _wait(self) -> None:
        if self.pipes:
            os.read(self.pipes[0], 1)

    def _call(self, words: bytes) -> None:
        if self.pipes:
            os.write(self.pipes[1], words)
