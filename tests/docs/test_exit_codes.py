"""Every exit code that README documents, produced by a command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.pages import ROOT, read_table, sections
from drumline.cli import EPILOG

DOCUMENTED = {row[0].strip("`"): row[1] for row in read_table(sections(ROOT / "README.md")["Exit codes"])}

SPEC = """
project: codes
framework: plain
run: {run}
"""
COMMANDS = {
    "0": ("true", ["train"]),
    "1": ("false", ["train"]),
    "2": ("true", ["train", "-p", "undeclared=1"]),
    "3": ("true", ["train", "--hosts", "127.0.0.1"]),
    "4": ("true", ["logs", "1"]),
}


class Project:
    """A folder with a spec, and a drumline home."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        config = folder / "ssh_config"
        config.write_text("Host *\n  Port 1\n")  # an unused port of this machine
        self.env = {**os.environ, "DRUMLINE_HOME": str(folder / "home"), "DRUMLINE_SSH_CONFIG": str(config)}

    def drumline(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "drumline", *words]

    def run(self, *words: str) -> int:
        done = subprocess.run(self.drumline(*words), cwd=self.folder, env=self.env, capture_output=True, check=False)
        return done.returncode


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    project = Project(tmp_path)
    yield project
    for run in (tmp_path / "home" / "runs").glob("*"):
        project.run("kill", "--force", run.name)


def test_readme_documents_the_codes_that_the_help_names() -> None:
    named = dict(line.split(maxsplit=1) for line in EPILOG.splitlines() if line.strip()[:1].isdigit())
    assert DOCUMENTED.keys() == named.keys()
    assert all(DOCUMENTED[code].startswith(words) for code, words in named.items())


@pytest.mark.parametrize("code", [code for code in DOCUMENTED if code != "130"])
def test_a_command_exits_with_each_documented_code(code: str, project: Project) -> None:
    run, words = COMMANDS[code]
    (project.folder / "drumline.yml").write_text(SPEC.format(run=run))
    assert project.run(*words) == int(code)


def test_an_interrupted_train_exits_with_130_and_its_run_continues(project: Project) -> None:
    (project.folder / "drumline.yml").write_text(SPEC.format(run="echo begun; sleep 60"))
    with subprocess.Popen(
        project.drumline("train"), cwd=project.folder, env=project.env, stdout=subprocess.PIPE, text=True
    ) as train:
        assert train.stdout is not None
        next(line for line in train.stdout if line.endswith("begun\n"))
        train.send_signal(signal.SIGINT)
        train.stdout.read()
    assert train.returncode == 130
    assert project.run("supervise", "1") == 0  # it runs, and has a supervisor
    assert project.run("kill", "1") == 0
