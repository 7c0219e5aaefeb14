"""Engines of other packages: found by their entry point, with a block of the spec like any other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

OPTIONS = '''
from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from drumline.engine.options import Flag, LaunchInput
from drumline.plan.make import EnginePart
from drumline.plan.rules import SpecProblem
from drumline.spec.block import Block
from drumline.spec.struct import Meta
from drumline.spec.types import Spec


class Options(Block, frozen=True):
    """A toy."""

    short: ClassVar[str | None] = "pace"
    pace: Annotated[Literal["slow", "fast"], Meta(description="How fast it runs")] = "slow"
    wheels: Annotated[int, Meta(ge=1)] = 4


FLAGS = (Flag("wheels", "NUMBER", "Of the toy.", "toys"),)


def plan(spec: Spec, engine: str, given: LaunchInput) -> EnginePart:
    options = spec.engine.options(engine) or Options()
    return EnginePart({"pace": options.pace, "wheels": int(given.flags.get("wheels", options.wheels))}, where="a toy")


def problems(spec: Spec, engine: str) -> Iterator[SpecProblem]:
    options = spec.engine.options(engine)
    if options and options.wheels == 13:
        yield SpecProblem(("engine", engine, "wheels"), "13 wheels turn over")
'''
PLAN = """
import json, sys
from drumline.load.load import load
plan = load("drumline.yml", flags={"wheels": sys.argv[1]} if sys.argv[1:] else {}).plan
print(json.dumps([plan.engine, plan.where, plan.options]))
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder with a package that has an engine `toy-car`."""
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "__init__.py").touch()
    (tmp_path / "toy" / "options.py").write_text(OPTIONS)
    info(tmp_path, "toy-1.0", "[console_scripts]\ntoy = toy:main\n\n[drumline.engines]\ntoy-car = toy\n")
    return tmp_path


def info(folder: Path, name: str, entry_points: str) -> None:
    (folder / f"{name}.dist-info").mkdir()
    (folder / f"{name}.dist-info" / "entry_points.txt").write_text(entry_points)


def call(installed: Path, spec: str, *words: str) -> subprocess.CompletedProcess[str]:
    (installed / "drumline.yml").write_text(f"project: digits\nrun: x\n{spec}\n")
    env = {**os.environ, "PYTHONPATH": str(installed), "TERM": "dumb"}
    return subprocess.run([sys.executable, *words], env=env, cwd=installed, capture_output=True, text=True, check=False)


def test_the_block_of_a_plug_in_is_in_the_schema(installed: Path) -> None:
    schema = json.loads(call(installed, "", "-m", "drumline", "schema").stdout)
    short, whole = schema["$defs"]["Options"]["anyOf"]
    assert short["enum"] == ["fast", "slow"]
    assert (short["description"], whole["properties"]["wheels"]["minimum"]) == ("How fast it runs", 1)
    engine = schema["$defs"]["Engine"]["anyOf"]
    assert engine[1]["properties"]["toy-car"]["$ref"] == "#/$defs/Options"
    assert "toy-car" in engine[0]["enum"]


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("engine: {toy-car: quick}", "3: engine.toy-car: expected one of "),
        ("engine: {toy-car: {whels: 3}}", "3: engine.toy-car.whels: unknown key; did you mean `wheels`?"),
        (
            "engine:\n  toy-car:\n    wheels: 0",
            "5: engine.toy-car.wheels: expected a whole number of at least 1, got 0",
        ),
        ("engine:\n  toy-car:\n    wheels: 13", "5: engine.toy-car.wheels: 13 wheels turn over"),
        ("engine: toycar", "did you mean `toy-car`?"),
        ("wheels: 3", "3: wheels: unknown key; did you mean `engine.toy-car.wheels`?"),
    ],
)
def test_problems_of_the_block_of_a_plug_in_are_reported_with_their_line(
    installed: Path, spec: str, problem: str
) -> None:
    done = call(installed, spec, "-m", "drumline", "check")
    assert done.returncode == 2
    assert problem in done.stderr


def test_the_options_module_of_a_plug_in_makes_its_part_of_the_plan(installed: Path) -> None:
    assert call(installed, "engine: {toy-car: fast}", "-c", PLAN).stdout == (
        '["toy-car", "a toy", {"pace": "fast", "wheels": 4}]\n'
    )
    assert '"wheels": 6' in call(installed, "engine: toy-car", "-c", PLAN, "6").stdout
    refused = call(installed, "", "-c", PLAN, "6").stderr
    assert "--wheels is for toys, but this runs on local" in refused


@pytest.mark.parametrize(
    ("written", "shown"), [("class Options: ...", "<class 'toy.options.Options'>"), ("Options = {'a': 1}", "{'a': 1}")]
)
def test_options_of_a_plug_in_that_are_no_block_are_an_error(installed: Path, written: str, shown: str) -> None:
    (installed / "toy" / "options.py").write_text(f"{written}\nFLAGS = ()\n")
    said = f"error: the engine `toy-car` cannot be used: its `Options` is not a Block: {shown}\n"
    assert call(installed, "", "-m", "drumline", "schema").stderr == said
