"""A command at a pseudo-terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
from collections.abc import Callable, Mapping

from scaffold.waiting import PATIENCE_SECONDS
from scaffold.workspace import COMMAND, Workspace


class Terminal:
    """A command at its own pseudo-terminal, with everything that it has written there."""

    def __init__(
        self, workspace: Workspace, *words: str, lines: int = 40, columns: int = 100, env: Mapping[str, str] = {}
    ) -> None:
        self.shown = b""
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.process = subprocess.Popen(
            [*COMMAND, *words],
            cwd=workspace.project,
            env={**workspace.env, **env},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509
        )
        os.close(slave)

    def read(self, seconds: float) -> bool:
        """Read the next output; return False if none comes within `seconds`, or the process has ended."""
        if not select.select([self._master], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError:
            return False
        self.shown += data
        return bool(data)

    def wait_for(self, text: str) -> None:
        """Wait until this text was shown."""
        self.wait_until(lambda: text.encode() in self.shown)

    def wait_until(self, look: Callable[[], bool]) -> None:
        """Read output until `look` returns true; fail if none comes for PATIENCE_SECONDS."""
        while not look():
            assert self.read(PATIENCE_SECONDS), self.shown.decode()

    def wait(self) -> int:
        """Wait for the end of the command."""
        while self.read(PATIENCE_SECONDS):
            pass
        return self.process.wait(timeout=PATIENCE_SECONDS)

    def press_ctrl_c(self) -> None:
        """Type Ctrl-C."""
        os.write(self._master, b"\x03")

    def close(self) -> None:
        """Close the terminal, as a closed window does."""
        if self._master >= 0:
            os.close(self._master)
            self._master = -1
