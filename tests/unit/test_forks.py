"""Where a process may be forked: nowhere that an event loop or threads can be."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import drumline

SRC = Path(drumline.__file__).parent
MAY_FORK = {
    "supervise/detach.py": "the supervisor, before any loop exists",
    "runtime/order.py": "keepers, in the fork server and in warm processes",
    "runtime/keeper.py": "its replica",
    "runtime/warm_fork.py": "a warm replica below its shell",
    "runtime/warm_imports.py": "a warm process, to count the threads that outlive a fork",
}
FORKS = {"fork", "forkpty", "fork1"}
MODULES = {"multiprocessing", "pty"}  # they fork


def forks(source: str) -> list[int]:
    """Return the lines that fork, or name what does."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute(value=ast.Name(id="os"), attr=name) if name in FORKS:
                found.append(node.lineno)
            case ast.ImportFrom(module="os", names=names) if any(each.name in FORKS for each in names):
                found.append(node.lineno)
            case ast.ImportFrom(module=str(module)) if module.partition(".")[0] in MODULES:
                found.append(node.lineno)
            case ast.Import(names=names) if any(each.name.partition(".")[0] in MODULES for each in names):
                found.append(node.lineno)
    return found


@pytest.mark.parametrize(
    "source",
    [
        "import os\npid = os.fork()",
        "make = os.forkpty",
        "from os import fork as split",
        "import multiprocessing.pool",
        "from pty import spawn",
    ],
)
def test_a_fork_is_noticed(source: str) -> None:
    assert forks(source)


def test_only_processes_without_a_loop_fork() -> None:
    files = {str(path.relative_to(SRC)): path.read_text() for path in SRC.rglob("*.py")}
    found = {name: lines for name, text in files.items() if (lines := forks(text))}
    assert found.keys() == MAY_FORK.keys(), {name: lines for name, lines in found.items() if name not in MAY_FORK}
