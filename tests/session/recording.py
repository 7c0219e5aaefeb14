"""Run real commands in a terminal, and record what it shows."""

from __future__ import annotations

import fcntl
import os
import pty
import shlex
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from session.screen import Screen, Span

COLUMNS = 100
COMMANDS = (
    "drumline init --template plain",
    "drumline train",
    "drumline train shards.yml",
    "drumline status",
)
# In addition to the files of `init`: a training in which one replica fails.
FILES = {
    "shards.yml": "project: digits\nframework: plain\nrun: python shards.py\nroles: {worker: 2}\n",
    "shards.py": """\
import os, time

for step in range(1, 100):
    print(f"step {step}/99: loss {1 / step:.2f}", flush=True)
    if os.environ["DRUMLINE_INDEX"] == "1" and step == 2:
        raise ValueError("bad row in shard 7")
    time.sleep(0.2)
""",
}
_PROMPT = "\x1b[32m$\x1b[0m \x1b[1m{}\x1b[0m\r\n"


def record(commands: Sequence[str] = COMMANDS) -> list[list[Span]]:
    """Return what a terminal shows when these commands run in an empty folder."""
    screen = Screen(COLUMNS)
    with _newcomer() as (folder, env):
        for number, command in enumerate(commands):
            screen.write(("\r\n" if number else "") + _PROMPT.format(command))
            said = _run(command, folder, env).decode()
            screen.write(said.replace(str(folder.parent), "/home/you"))
    return screen.lines()


@contextmanager
def _newcomer() -> Iterator[tuple[Path, Mapping[str, str]]]:
    """Yield a folder, and the variables of a user with drumline; its runs are ended afterwards."""
    with tempfile.TemporaryDirectory(prefix="drumline-session.") as top:
        folder = Path(top) / "digits"
        folder.mkdir()
        for name, text in FILES.items():
            (folder / name).write_text(text)
        env = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": top,
            "DRUMLINE_HOME": f"{top}/.local/share/drumline",
            "DRUMLINE_GPUS": "",
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
        }
        try:
            yield folder, env
        finally:
            for run in Path(env["DRUMLINE_HOME"], "runs").glob("*"):
                killing = ["drumline", "kill", "--force", run.name]
                subprocess.run(killing, env=env, capture_output=True, check=False)


def _run(command: str, folder: Path, env: Mapping[str, str]) -> bytes:
    """Return what a command writes to a terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    with subprocess.Popen(
        shlex.split(command), cwd=folder, env=env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    ):
        os.close(theirs)
        said = b"".join(_read(ours))
    os.close(ours)
    return said


def _read(terminal: int) -> Iterator[bytes]:
    while True:
        try:
            yield os.read(terminal, 65536)
        except OSError:  # no process has its other end any more
            return
