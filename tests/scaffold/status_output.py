"""Parse the output of `drumline status`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from drumline.cli import run

Captured = pytest.CaptureFixture[str]


def status(*words: str) -> int:
    return run(["status", *words])


def data(capsys: Captured, *words: str) -> Any:
    assert status(*words, "-o", "json") == 0
    return json.loads(capsys.readouterr().out)


def cells(text: str) -> list[list[str]]:
    """Return the cells of a table without its headings; cells are separated by two blanks or more."""
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in text.splitlines()[1:]]
