"""Tests that assert nothing are found, and those that assert by a helper are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from assertions import find_idle_tests


def idle(folder: Path, body: str, head: str = "") -> list[str]:
    """The tests that assert nothing, in a file with one test of this body."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    (folder / "test_it.py").write_text(f"{head}\ndef test_it():\n{lines}")
    return [each.name for each in find_idle_tests(folder)]


@pytest.mark.parametrize(
    "body",
    [
        "assert f()",
        "assert x == 1 or y",
        "with pytest.raises(ValueError):\n    f()",
        "if f():\n    raise AssertionError('no')",
        "def inner():\n    assert f()\ninner()",
        "wait_until(f)",
        "each(check)",
        "Workspace().start()",
    ],
)
def test_a_test_that_can_fail_is_not_named(tmp_path: Path, body: str) -> None:
    (tmp_path / "waits.py").write_text("def wait_until(look):\n    assert look()\n")
    head = """
from waits import wait_until
def check(x):
    wait_until(x)
class Workspace:
    def start(self):
        wait_until(self.look)
"""
    assert idle(tmp_path, body, head) == []


@pytest.mark.parametrize(
    "body",
    [
        "f()",
        "assert True",
        "assert 1 == 1",
        "assert f() or True",
        "raise ValueError",
        "wait_until(f)",  # one that does not assert
        "'a'.encode()",
        "with suppress(ValueError):\n    f()",
    ],
)
def test_a_test_that_cannot_fail_is_named(tmp_path: Path, body: str) -> None:
    (tmp_path / "other.py").write_text(
        "def wait_until(look):\n    assert look()\nclass C:\n    def encode(self):\n        assert 0\n"
    )
    head = "def wait_until(look):\n    look()\n"
    assert idle(tmp_path, body, head) == ["test_it"]
