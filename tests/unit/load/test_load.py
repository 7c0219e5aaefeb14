"""`load` makes a plan from the name of a file and options of the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from drumline.errors import InputError, SpecError
from drumline.load.load import load

GOOD = "project: digits\nrun: train {{ lr }} {{ layers }}\nparameters: {lr: 1e-6, layers: 2}\n"


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "drumline.yml"
    file.write_text(GOOD)
    return file


@pytest.mark.parametrize("name", ["drumline.yml", "drumline.yaml"])
def test_the_spec_of_this_folder_is_found_by_either_name(spec: Path, name: str) -> None:
    spec.rename(spec.with_name(name))
    loaded = load(None)
    assert (loaded.source, loaded.directory, loaded.plan.name) == (name, str(spec.parent), "digits")


def test_relative_paths_are_resolved_in_the_folder_of_the_spec(spec: Path) -> None:
    (spec.parent / "below").mkdir()
    file = spec.rename(spec.parent / "below" / "other.yml")
    assert load("below/other.yml").directory == str(file.parent)


def test_a_parameter_on_the_command_line_is_used_unchanged(spec: Path) -> None:
    loaded = load(None, parameters=["lr=a=b {{ layers }}", "layers=", "layers=4"])
    assert loaded.plan.parameters == {"lr": "a=b {{ layers }}", "layers": "4"}
    assert loaded.plan.replicas[0].argv == ("train", "a=b {{ layers }}", "4")


@pytest.mark.parametrize(
    ("given", "message", "hint"),
    [
        ("lr", "-p lr: expected NAME=VALUE", ""),
        ("layer=3", "-p layer=3: the spec has no parameter `layer`", "did you mean `layers`?"),
        ("x=1", "-p x=1: the spec has no parameter `x`", "the spec has: lr, layers"),
        ("lr=\udcff", "-p lr=\\udcff: the value is not UTF-8", ""),
        ("\x1b=\n", "-p \\x1b=\\n: the spec has no parameter `\\x1b`", "the spec has: lr, layers"),
    ],
)
def test_an_unknown_or_malformed_parameter_is_refused(spec: Path, given: str, message: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        load(None, parameters=[given])
    assert (caught.value.message, caught.value.hint) == (message, hint)


def test_problems_of_the_spec_are_reported_before_problems_of_the_command_line(spec: Path) -> None:
    spec.write_text(GOOD + "port: 0\n")
    with pytest.raises(SpecError, match=r"^drumline.yml:4: port: "):
        load(None, parameters=["nothing"])


def test_a_name_on_the_command_line_replaces_the_name_in_the_spec(spec: Path) -> None:
    spec.write_text(GOOD + "name: morning\n")
    assert load(None).plan.name == "morning"
    assert load(None, name="evening").plan.name == "evening"


@pytest.mark.parametrize("name", ["", "-x", "a b", "x" * 64, "a\n"])
def test_an_invalid_name_on_the_command_line_is_refused(spec: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"^--name .*: expected a name of at most 63 letters"):
        load(None, name=name)


def test_an_engine_on_the_command_line_replaces_the_engine_in_the_spec(spec: Path) -> None:
    spec.write_text(GOOD + "engine: {ssh: [a]}\n")
    assert load(None).plan.engine == "ssh"
    assert load(None, on="kubernetes").plan.engine == "kubernetes"


def test_a_script_in_the_place_of_a_spec_is_named_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("import os\n")
    with pytest.raises(InputError, match=r"^train\.py: a Python script, not a spec$") as raised:
        load("train.py")
    assert raised.value.hint.startswith("write `run: python train.py` into a drumline.yml")
