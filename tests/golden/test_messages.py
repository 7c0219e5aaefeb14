"""Every text that a user can read is listed in messages.txt, and written in one style."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from messages import ERRORS, HELP, HINTS, LIST, OTHER, collect, write

FOUND = collect()
# Names that begin with a capital letter wherever they stand.
_NAMES = r"ConfigMap|Docker|Estimator|JobSet|Keras|Kubernetes|Linux|Python|Tensor\w+|TFJob"


def test_every_message_is_listed() -> None:
    listed = LIST.read_text("utf-8")
    assert listed == write(FOUND), "run `make messages` and look at the diff"


@pytest.mark.parametrize("section", [ERRORS, HINTS])
def test_a_message_is_one_sentence_without_a_capital_and_a_full_stop(section: str) -> None:
    capital = re.compile(rf"(?!({_NAMES})\b)[A-Z][a-z]")
    assert [text for text in FOUND[section] if capital.match(text) or re.search(r"(?<![.…])[.!]$", text)] == []
    assert [text for text in FOUND[section] if text != text.strip()] == []


def test_the_help_of_an_option_is_a_sentence() -> None:
    table = re.compile(r"[a-z-]+:? ")  # of names, in the help of a command
    sentence = re.compile(r"[A-Z].*\.|tensorflow unless given\.")
    assert [text for text in FOUND[HELP] if not sentence.fullmatch(text) and not table.match(text)] == []


def test_no_message_has_two_spaces_or_the_word_please() -> None:
    aligned = re.compile(r"^ |⏎|   ")  # columns of a list of commands
    texts = {text for section in (ERRORS, HINTS, OTHER) for text in FOUND[section] if not aligned.search(text)}
    assert [text for text in texts if "  " in text or re.search(r"\b[Pp]lease\b", text)] == []


def test_messages_are_found_wherever_they_are_composed(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(
        '''
"""No message."""
def command(folder):
    """No message either."""
    raise InputError(f"run {folder.id} is over", hint="`drumline status` lists them" if folder else "look again")
    yield Problem("spec", None, "", "expected")
    message = f"was placed at {where[0]:>3}"
    re.compile(r"two words\\\\s+")
    key = "one-word"

@click.command()
def status():
    """Show the runs,
    newest first."""
''',
        "utf-8",
    )
    assert collect(tmp_path) == {
        ERRORS: {"run {id} is over", "spec", "expected"},
        HINTS: {"`drumline status` lists them", "look again"},
        HELP: {"Show the runs, newest first."},
        OTHER: {"was placed at {where}"},
    }
