"""Train an example in a test: a copy of its folder, by `drumline train`, in its framework's environment."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from drumline.run.state import Phase
from scaffold.environments import ROOT, find_python
from scaffold.rendered_gang import GANG_SECONDS, run
from scaffold.workspace import Run, Workspace


@contextmanager
def open_workspace(folder: Path, warmth: Path | None = None) -> Iterator[Workspace]:
    """Yield a workspace in which scripts can import `drumline.runtime`; no process of it is left after the test."""
    workspace = Workspace(folder / "workspace", warmth=warmth)
    workspace.env["PYTHONPATH"] = str(ROOT / "src")
    workspace.env["TF_CPP_MIN_LOG_LEVEL"] = "2"
    temporary = (warmth or folder) / "tmp"
    workspace.env["TMPDIR"] = str(temporary)
    temporary.mkdir(exist_ok=True)
    try:
        yield workspace
        workspace.leave()
        assert warmth or list(temporary.glob("private-*")) == []  # with `warmth`, the last test checks
    finally:
        workspace.clear()


def train(workspace: Workspace, folder: str, environment: str, *words: str, script: str) -> Run:
    """Train the example of a folder to its end, with `script` instead of the example's own, which it can import."""
    shutil.copytree(ROOT / "examples" / folder, workspace.project, dirs_exist_ok=True)
    workspace.write("instead.py", script)
    spec = (workspace.project / "drumline.yml").read_text()
    workspace.write("here.yml", re.sub(r"\bpython \w+\.py --", f"{find_python(environment)} instead.py --", spec))
    return train_to_the_end(workspace, "here.yml", *words)


def train_to_the_end(workspace: Workspace, *words: str, seconds: float = GANG_SECONDS) -> Run:
    """Run `drumline train` with these arguments; if it fails, fail the test with the last lines of all logs."""
    answer = workspace.run("train", "-d", *words)
    assert answer.code == 0, answer.err
    started = Run(workspace, answer.out.strip())
    try:
        started.wait_for(Phase.FINISHED, seconds)
    except AssertionError as error:
        attempt = started.state.attempt
        tails = (f"{each}\n{said(started, str(each), attempt)[-3000:]}" for each in started.state.replicas)
        pytest.fail("\n--- ".join((str(error), *tails)))
    return started


def said(run: Run, replica: str, attempt: int = 0) -> str:
    """Return the output of a replica."""
    return run.log(replica, attempt).decode(errors="replace")


def train_alone(workspace: Workspace, environment: str, code: str) -> str:
    """Run lines of Python in the folder of the example, in one process without drumline."""
    env = {name: workspace.env[name] for name in ("PATH", "PYTHONPATH", "TMPDIR")}
    return run([str(find_python(environment)), "-c", code], workspace.project, env)
