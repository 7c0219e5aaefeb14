"""A gang started by hand from the output of `drumline render`; all its processes end with the block."""

from __future__ import annotations

import os
import re
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from scaffold.environments import ROOT, find_python

GANG_SECONDS = 1500.0

# As `python train.py` does it.
_ALONE_AND_THEN = """
import os, runpy, sys
sys.argv = ["train.py"]
runpy.run_path("train.py", run_name="__main__")
os.environ["OUTPUT_DIR"] = {output!r}
"""


class Project:
    """A folder written by `drumline init`, with the environment of its framework."""

    def __init__(self, project: Path, folder: Path, template: str, environment: str) -> None:
        self.folder = project
        self.python = find_python(environment)
        self._rest = folder
        # A minimal environment: no variable of the test process reaches a training.
        self._env = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "DRUMLINE_HOME": str(folder / "home"),
            "PYTHONPATH": str(ROOT / "src"),
        }
        self.output = folder / "home" / "runs" / "0" / "output"
        self.drumline("init", "--template", template, ".")

    def drumline(self, *words: str) -> str:
        """Run a command of drumline with the framework's interpreter and return what it prints."""
        return run([str(self.python), "-m", "drumline", *words], self.folder, self._env)

    def run_alone(self, and_then: str = "") -> str:
        """Run the script in one process without drumline, then lines of Python that read the output of a gang."""
        code = _ALONE_AND_THEN.format(output=str(self.output)) + and_then
        return run([str(self.python), "-c", code], self.folder, self._env)

    @contextmanager
    def gang(self, *parameters: str) -> Iterator[RenderedGang]:
        """Render the plan with ports that no other test uses; kill the gang at the end of the block."""
        with claimed_ports(8) as port:
            spec = (self.folder / "drumline.yml").read_text()
            (self.folder / "here.yml").write_text(f"{spec}\nport: {port}\n")
            options = [word for parameter in parameters for word in ("-p", parameter)]
            script = self._rest / "gang.sh"
            script.write_text(self.drumline("render", "here.yml", *options))
            logs = self._rest / "logs"
            logs.mkdir()
            with RenderedGang(script, logs, self._env) as gang:
                yield gang


class RenderedGang:
    """Replicas of a rendered script, each in its own process group and with its own log file."""

    def __init__(self, script: Path, logs: Path, env: Mapping[str, str]) -> None:
        self._script, self._logs, self._env = script, logs, env
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.kill()

    def start(self, *replicas: str) -> None:
        """Start each replica as a user would, in a separate terminal."""
        for replica in replicas:
            with (self._logs / replica).open("wb") as log:
                self._processes[replica] = subprocess.Popen(
                    ["sh", self._script, replica], stdout=log, stderr=log, env=self._env, start_new_session=True
                )

    def finish(self, *replicas: str) -> None:
        """Wait until these replicas have exited with 0; otherwise fail with the last lines of all logs."""
        deadline = time.monotonic() + GANG_SECONDS
        with selectors.DefaultSelector() as selector:
            for replica in replicas:
                selector.register(os.pidfd_open(self._processes[replica].pid), selectors.EVENT_READ, replica)
            while waiting := selector.get_map():
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                if not ready:
                    names = [key.data for key in waiting.values()]
                    pytest.fail(f"still running after {GANG_SECONDS:g} s: {names}{self.tails()}")
                for key, _ in ready:
                    selector.unregister(key.fd)
                    os.close(key.fd)
                    if code := self._reap(key.data):
                        pytest.fail(f"{key.data} exited with {code}{self.tails()}")

    def is_running(self, replica: str) -> bool:
        """Return whether the replica has not exited."""
        return os.waitid(os.P_PID, self._processes[replica].pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def output(self, replica: str) -> str:
        """Return the output of the replica so far."""
        return (self._logs / replica).read_text(errors="replace")

    def tails(self) -> str:
        """Return the last lines of every replica, for the message of a failure."""
        return "".join(f"\n--- {name}\n{self.output(name)[-3000:]}" for name in self._processes)

    def kill(self) -> None:
        """Kill all replicas that are left, with their child processes."""
        for replica, process in self._processes.items():
            if process.returncode is None:
                self._reap(replica)

    def _reap(self, replica: str) -> int:
        """Kill the replica's process group and return the exit code; the replica's own code if it had exited before."""
        process = self._processes[replica]
        os.killpg(process.pid, signal.SIGKILL)  # before `wait`, while the pid still belongs to it
        return process.wait()


def run(argv: Sequence[str], folder: Path, env: Mapping[str, str]) -> str:
    """Run a command to its end and return its output; fail the test if it does not exit with 0."""
    done = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, timeout=GANG_SECONDS, check=False)
    if done.returncode != 0:
        pytest.fail(f"{argv} exited with {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return done.stdout


@contextmanager
def claimed_ports(count: int) -> Iterator[int]:
    """Yield the first of `count` consecutive free ports, which no other test of this machine uses during the block."""
    for first in range(32_760 - count, 26_000, -count):
        with socket.socket(socket.AF_UNIX) as claim:
            try:
                claim.bind(f"\0drumline-test-ports-{first}")
                for port in range(first, first + count):
                    with socket.socket() as probe:
                        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                        probe.bind(("", port))
            except OSError:
                continue
            yield first
            return
    pytest.fail(f"no {count} free ports in a row")


def losses(output: str) -> dict[int, float]:
    """Return the printed loss of each epoch."""
    return {int(epoch): float(loss) for epoch, loss in re.findall(r"^epoch (\d+): loss ([\d.]+)", output, re.MULTILINE)}


def accuracies(output: str) -> dict[int, float]:
    """Return the printed accuracy of each epoch."""
    found = re.findall(r"^epoch (\d+): .*accuracy ([\d.]+)", output, re.MULTILINE)
    return {int(epoch): float(accuracy) for epoch, accuracy in found}
