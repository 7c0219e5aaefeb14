"""Modules that read a journal do not import modules that decide."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import drumline

SOURCE = Path(drumline.__file__).parent
READERS = ("view", "cli", "store", "run/goodput.py", "run/drill.py", "run/fold.py", "run/describe.py")
# Modules that decide, with their parts.
PARTS = (
    "machine",
    "difference",
    "decide",
    "hang",
    "pending",
    "restart",
    "restart_unit",
    "verdict",
    "waiting",
    "reconsider",
)
DECIDING = {f"drumline.run.{name}" for name in PARTS}
MIGRATION = SOURCE / "store" / "upgrade.py"


def files() -> list[Path]:
    return [
        path
        for reader in READERS
        for path in sorted((SOURCE / reader).rglob("*.py") if (SOURCE / reader).is_dir() else [SOURCE / reader])
        if path != MIGRATION
    ]


def imported(path: Path) -> Iterator[str]:
    """Yield every module that a file names, wherever it imports it."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_reader_imports_nothing_that_decides(path: Path) -> None:
    assert not DECIDING & set(imported(path))


def test_the_migration_is_the_one_exception() -> None:
    assert "drumline.run.machine" in set(imported(MIGRATION))


def test_every_listed_part_exists() -> None:
    assert all((SOURCE / "run" / f"{name}.py").exists() for name in PARTS)
