"""How an example is trained in a test: a copy of its folder, by `drumline train`, in its framework's environment."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from drumline.run.state import Phase
from integration.local.runs import House, Run
from training.line import LINE_SECONDS, ROOT, find_python, run


@contextmanager
def open_house(folder: Path, warmth: Path | None = None) -> Iterator[House]:
    """A house in which scripts find `drumline.runtime`; nothing of them is left in the end."""
    house = House(folder / "house", warmth=warmth)
    house.env["PYTHONPATH"] = str(ROOT / "src")
    house.env["TF_CPP_MIN_LOG_LEVEL"] = "2"
    temporary = (warmth or folder) / "tmp"
    house.env["TMPDIR"] = str(temporary)
    temporary.mkdir(exist_ok=True)
    try:
        yield house
        house.leave()
        assert list(temporary.glob("private-*")) == []
    finally:
        house.clear()
        shutil.rmtree(temporary)


def train(house: House, folder: str, environment: str, *words: str, script: str) -> Run:
    """Train the example of a folder to its end, with a script in its place, which stands beside it."""
    shutil.copytree(ROOT / "examples" / folder, house.project, dirs_exist_ok=True)
    house.write("instead.py", script)
    spec = (house.project / "drumline.yml").read_text()
    house.write("here.yml", re.sub(r"\bpython \w+\.py --", f"{find_python(environment)} instead.py --", spec))
    return train_to_the_end(house, "here.yml", *words)


def train_to_the_end(house: House, *words: str, seconds: float = LINE_SECONDS) -> Run:
    """Run `drumline train` with these words; fail the test with the last lines of all if it does not succeed."""
    answer = house.run("train", "-d", *words)
    assert answer.code == 0, answer.err
    started = Run(house, answer.out.strip())
    try:
        started.wait_for(Phase.FINISHED, seconds)
    except AssertionError as error:
        attempt = started.state.attempt
        tails = (f"{each}\n{said(started, str(each), attempt)[-3000:]}" for each in started.state.replicas)
        pytest.fail("\n--- ".join((str(error), *tails)))
    return started


def said(run: Run, replica: str, attempt: int = 0) -> str:
    """What a replica wrote."""
    return run.log(replica, attempt).decode(errors="replace")


def train_alone(house: House, environment: str, code: str) -> str:
    """Run a few lines of Python beside the example, as one process that was not started by drumline."""
    env = {name: house.env[name] for name in ("PATH", "PYTHONPATH", "TMPDIR")}
    return run([str(find_python(environment)), "-c", code], house.project, env)
