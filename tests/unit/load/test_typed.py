"""What was typed is read as click reads it, or left to click."""

from __future__ import annotations

import click
import pytest
from hypothesis import given
from hypothesis import strategies as some

from drumline.cli.train import command
from drumline.load.typed import Typed, read_typed

WORDS = ["-f", "--file", "-p", "--parameter", "--name", "-d", "--detach", "--no-warm", "--oversubscribe", "a.yml"]
WORDS += ["--kill-on-interrupt", "--on", "local", "-", "--", "", "-da", "-pa=1", "--file=b.yml", "--name=x", "lr=0.1"]


def as_click_reads(words: list[str]) -> Typed | None:
    """What the command would be called with; None if it would not be."""
    try:
        found = command.make_context("train", list(words)).params
    except click.UsageError:
        return None
    return Typed(
        file=found["file"] or found["named"],
        given=found["given"],
        name=found["name"],
        no_warm=found["no_warm"],
        oversubscribe=found["oversubscribe"],
    )


@given(some.lists(some.sampled_from(WORDS), max_size=6))
def test_it_is_what_click_reads(words: list[str]) -> None:
    typed = read_typed(words)
    assert typed is None or typed == as_click_reads(words)


@pytest.mark.parametrize(
    ("words", "typed"),
    [
        ([], Typed()),
        (["a.yml"], Typed("a.yml")),
        (["-f", "a.yml", "-d"], Typed("a.yml")),
        (["-p", "lr=1", "a.yml", "-p", "lr=2"], Typed("a.yml", ("lr=1", "lr=2"))),
        (["--name", "mine", "--no-warm", "--kill-on-interrupt"], Typed(name="mine", no_warm=True)),
        (["--detach", "--oversubscribe"], Typed(oversubscribe=True)),
    ],
)
def test_what_most_people_type_is_plain(words: list[str], typed: Typed) -> None:
    assert read_typed(words) == typed


@pytest.mark.parametrize(
    "words",
    [
        ["-"],
        ["-f", "-"],
        ["--on", "local"],
        ["a.yml", "b.yml"],
        ["-f"],
        ["-p", "-x=1"],
        ["--", "a.yml"],
        ["--hosts", "a"],
    ],
)
def test_the_rest_is_left_to_click(words: list[str]) -> None:
    assert read_typed(words) is None
