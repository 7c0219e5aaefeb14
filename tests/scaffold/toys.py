"""Projects that run on the toy, an engine of another package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from scaffold.waiting import wait_until

SPEC = """
project: digits
framework: plain
run: sh -c 'echo worker "$DRUMLINE_INDEX" of {{ label }}; nice; until [ -e gate ]; do sleep 0.05; done'
parameters: {label: default}
engine: {toy: {nice: 7}}
roles: {worker: {replicas: 2}}
"""


class Answer(NamedTuple):
    """The exit code and output of a command."""

    code: int
    out: str
    err: str


class Project:
    """A folder with a spec, and a drumline home."""

    def __init__(self, folder: Path, packages: Path) -> None:
        self.folder = folder / "project"
        self.folder.mkdir()
        self.home = folder / "home"
        (self.folder / "drumline.yml").write_text(SPEC)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("DRUMLINE_")}
        self.env = {**kept, "DRUMLINE_HOME": str(self.home), "PYTHONPATH": str(packages)}

    def run(self, *words: str) -> Answer:
        """Run a command to its end."""
        argv = [sys.executable, "-m", "drumline", *words]
        done = subprocess.run(argv, cwd=self.folder, env=self.env, check=False, capture_output=True, text=True)
        return Answer(done.returncode, done.stdout, done.stderr)

    def phase(self, run: str) -> str:
        """Return the state of a run."""
        return str(json.loads(self.run("status", run, "-o", "json").out)["state"])

    def begin(self, *words: str) -> str:
        """Start a run in the background, and return its number when all replicas run."""
        answer = self.run("train", "--detach", *words)
        assert answer.code == 0, answer
        run = answer.out.strip()
        wait_until(lambda: self.phase(run) == "RUNNING")
        return run

    def open_gate(self) -> None:
        """Let all replicas end."""
        (self.folder / "gate").touch()

    def supervisor(self, run: str) -> int:
        """Return the pid of a run's supervisor."""
        return int((self.home / "runs" / run / "supervisor.lock").read_text())
