"""Retired words do not come back: not in texts, and not in the names of modules, classes, functions and variables."""

from __future__ import annotations

from pathlib import Path

import pytest

from vocabulary import exceptions, retired
from vocabulary.scan import ROOT, find_in_names, find_in_text, scan

HINT = "write what it is instead; `make vocabulary` prints all:\n"


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_no_file_has_a_retired_word() -> None:
    found = scan()[0]
    assert not found, HINT + "\n".join(map(str, found))


def test_every_exception_is_needed_and_has_a_reason() -> None:
    every = {*exceptions.IN_TEXTS, *exceptions.IN_NAMES}
    assert not [each for each in every if not each.reason]
    assert every - scan()[1] == set()


def test_modules_that_were_renamed_are_gone() -> None:
    assert not [name for name in retired.MODULES if (ROOT / "src" / "drumline" / f"{name}.py").exists()]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Nobody answers, whoever asks.", ["Nobody", "whoever"]),
        ("a replica whose log is lost", ["whose"]),
        ("objections and remarks", ["objections", "remarks"]),
        ("the whole thing", []),
        ("the nobodyness of someones", []),
    ],
)
def test_retired_words_are_found_in_a_text(text: str, words: list[str], tmp_path: Path) -> None:
    found = find_in_text(write(tmp_path, "page.md", text), tmp_path)
    assert [each.word for each in found] == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def find_culprit(): ...", ["culprit"]),
        ("class HostLives: ...", ["lives"]),
        ("def f(whose_log): ...", ["whose"]),
        ("self.remarks = 1", ["remarks"]),
        ("class Hand: ...", ["hand"]),
        ("class HandWritten: ...\nreturned = by_hand = 1", []),
        ("def alive(): ...\nlifetime = wholesale = 1", []),
        ("import json as opinion", ["opinion"]),
        ("x = '''life'''", []),
    ],
)
def test_retired_words_are_found_in_names(text: str, words: list[str], tmp_path: Path) -> None:
    found = find_in_names(write(tmp_path, "src/module.py", text), tmp_path)
    assert [each.word for each in found] == words


@pytest.mark.parametrize(
    ("name", "words"), [("src/turn.py", ["turn"]), ("src/return_value.py", []), ("bench/hand.py", [])]
)
def test_a_module_has_no_retired_word_as_its_name(name: str, words: list[str], tmp_path: Path) -> None:
    assert [each.word for each in find_in_names(write(tmp_path, name, ""), tmp_path)] == words
