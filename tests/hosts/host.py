"""A host for tests: its own namespaces, held by its first process, which executes commands."""

from __future__ import annotations

import os
import select
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

INIT = Path(__file__).with_name("init")
OWN_PYTHON = "/run/python"  # of a host with another clock


class Process(NamedTuple):
    """A process of a host, with its pid on this machine."""

    pid: int
    argv: tuple[str, ...]


class Host:
    """One of the hosts, with its first process."""

    def __init__(self, name: str, number: int, folder: Path, clock_seconds: int = 0) -> None:
        self.name = name
        self.clock_seconds = clock_seconds  # how far its clocks are ahead of those of this machine
        self.address = f"10.89.0.{number + 10}"
        self.cable = f"cable{number}"
        self.folder = folder
        self.first = 0  # the pid of its first process, on this machine
        self._outer: subprocess.Popen[str] | None = None
        self._gone: int | None = None

    def begin(self, shared: str, size: str) -> None:
        """Start setting it up; `wait` returns when it is ready."""
        kinds = ["--net", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc"]
        if self.clock_seconds:
            kinds += ["--time", "--boottime", str(self.clock_seconds), "--monotonic", str(self.clock_seconds)]
        self._outer = subprocess.Popen(
            ["unshare", *kinds, "bash", str(INIT), str(self.folder), shared, size],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def wait(self) -> None:
        """Return when it is set up, without its sshd."""
        assert self._outer
        assert self._outer.stdout
        if (said := self._outer.stdout.readline()) != "ready\n":
            raise RuntimeError(f"{self.name} could not be set up: {said or 'see above'}")
        task = Path(f"/proc/{self._outer.pid}/task/{self._outer.pid}/children")
        self.first = int(task.read_text().split()[0])
        self._gone = os.pidfd_open(self.first)  # the first process of a namespace is the last to end

    @property
    def entrance(self) -> tuple[str, ...]:
        """Return the words that run a command in it."""
        spaces = ("--mount", "--net", "--pid", "--uts", "--ipc", *(("--time",) if self.clock_seconds else ()))
        return ("nsenter", "--target", str(self.first), *spaces, "--")

    def set_clocks(self) -> None:
        """Set another boot id, and let its Python return another time of day.

        Its boot and monotonic clocks are those of a time namespace. Time of day has no namespace: only Python returns
        another one, while `date` and the times of files are those of this machine.
        """
        shift = f"import time; time.time = (lambda real: lambda: real() + {self.clock_seconds})(time.time)"
        self.order("cat /proc/sys/kernel/random/uuid > /run/boot")
        self.order("mount --bind /run/boot /proc/sys/kernel/random/boot_id")
        self.order(f"python3 -m venv --without-pip {OWN_PYTHON}")
        own = f'echo "{shift}" > $each/clock.py && echo "import clock" > $each/clock.pth'
        self.order(f"for each in {OWN_PYTHON}/lib/*/site-packages; do {own}; done")

    def order(self, command: str) -> None:
        """Let its first process execute a shell command; return when it has."""
        assert self._outer
        talk: tuple[IO[str] | None, IO[str] | None] = self._outer.stdin, self._outer.stdout
        assert talk[0]
        assert talk[1]
        talk[0].write(f"{command}\n")
        talk[0].flush()
        said = talk[1].readline()
        if said != "done\n":
            talk[1].readline()
            raise RuntimeError(f"{self.name}: {said.strip() or f'ended at: {command}'}")

    def end(self) -> None:
        """End all its processes; return when none is left."""
        if self._outer:
            self._outer.kill()  # its child ends with it, and all processes of the namespace with that
            self._outer.communicate()
        if self._gone is not None:
            select.select([self._gone], [], [])
            os.close(self._gone)
            self._gone = None


def is_sshd(process: Process) -> bool:
    """Return whether it is an sshd or one of its sessions."""
    return process.argv[0].startswith(("sshd:", "/usr/sbin/sshd"))


def processes_in(kind: str, space: Path) -> Iterator[Process]:
    """Yield the processes in a namespace."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with suppress(OSError):
                if (folder / "ns" / kind).readlink() == space:
                    argv = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
                    yield Process(int(folder.name), tuple(argv))
