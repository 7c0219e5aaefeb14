"""`drumline help`: its pages agree with the specs, commands, variables and exit codes that they describe."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import click
import pytest

from drumline.cli import COMMANDS, EPILOG, run, train
from drumline.cli.help import TOPICS, topic
from drumline.load.load import check_spec
from drumline.plan.bind import CONTRACT

ROOT = Path(__file__).parents[3]


def test_help_lists_every_topic_with_its_subject(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["help"]) == 0
    shown = capfd.readouterr().out
    assert all(re.search(rf"^  {name} +{re.escape(topic(name).splitlines()[0])}$", shown, re.M) for name in TOPICS)


@pytest.mark.parametrize("name", TOPICS)
def test_a_topic_is_a_page_for_any_terminal_that_names_further_documentation(
    name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["help", name]) == 0
    shown = capfd.readouterr().out
    assert shown == topic(name)
    assert max(map(len, shown.splitlines())) < 80
    *_, last = shown.splitlines()
    assert last.startswith("More: ")
    pages = re.findall(r"[\w/-]+\.md", last)
    assert pages
    assert all((ROOT / page).is_file() for page in pages)


def test_every_page_of_the_package_is_a_topic() -> None:
    pages = files("drumline.cli").joinpath("topics").iterdir()
    assert sorted(page.name for page in pages) == sorted(f"{name}.txt" for name in TOPICS)


@pytest.mark.parametrize("words", [["train"], ["help"], ["tfconfig"], ["tfconfig", "make"]])
def test_help_of_a_command_is_the_output_of_its_help_option(
    words: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert run([*words, "--help"]) == 0
    own = capfd.readouterr().out
    assert run(["help", *words]) == 0
    assert capfd.readouterr().out == own


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        ("exitcodes", "no command or topic `exitcodes`", "did you mean `drumline help exit-codes`?"),
        ("exit codes", "no command or topic `exit codes`", "did you mean `drumline help exit-codes`?"),
        ("trian", "no command or topic `trian`", "did you mean `drumline help train`?"),
        ("delete", "no command or topic `delete`", "did you mean `drumline help kill`?"),
        ("weather", "no command or topic `weather`", "`drumline help` lists the topics"),
    ],
)
def test_help_of_an_unknown_topic_is_refused_with_the_nearest_topic(
    words: str, message: str, hint: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["help", *words.split()]) == 2
    assert capfd.readouterr().err == f"error: {message}\nhint: {hint}\n"


def test_the_page_about_specs_shows_a_valid_spec() -> None:
    shown = [line[2:] for line in topic("spec").splitlines() if line.startswith("  ")]
    spec, warnings = check_spec("\n".join(shown).encode(), "spec.txt")
    assert not warnings
    assert spec.project == "digits"


def test_the_pages_have_all_variables_engines_and_codes() -> None:
    assert set(re.findall(r"^  ([A-Z_]+)", topic("variables"), re.M)) >= CONTRACT
    named = re.findall(r"^  ([a-z]+)  ", topic("engines"), re.M)
    (on,) = (each for each in train.command.params if each.name == "on")
    assert isinstance(on.type, click.Choice)
    assert named == list(on.type.choices)
    codes = re.findall(r"^ +(\d+)  ", topic("exit-codes"), re.M)
    assert codes == re.findall(r"^ +(\d+)  ", EPILOG, re.M)


def test_commands_that_the_pages_name_exist() -> None:
    named = {word for name in TOPICS for word in re.findall(r"(?:`|^  )drumline ([a-z]+)", topic(name), re.M)}
    assert named <= COMMANDS.keys()
