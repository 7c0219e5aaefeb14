"""Find tests that cannot fail, by the syntax tree: `python -m assertions` lists those that assert nothing.

A test asserts by `assert`, by `raise AssertionError`, by pytest's `raises`, `warns`, `fail` and `exit`, or by a helper
of the tests that does: a function of its own file or one that it imports, or a method of that name. An assertion that
names nothing, or has an alternative that is always true, is none.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

Function = ast.FunctionDef | ast.AsyncFunctionDef
TESTS = Path(__file__).parent
_OF_PYTEST = {"raises", "warns", "fail", "exit"}
_METHOD = ""  # the file of a method, which is known by its name alone
_BUILT_IN = {name for each in (str, bytes, list, dict, set, tuple, Path) for name in dir(each)}


class Key(NamedTuple):
    """By which a function is known: its module, or none of a method, and its name."""

    module: str
    name: str


class Idle(NamedTuple):
    """A test that asserts nothing."""

    path: Path
    line: int
    name: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.name} asserts nothing"


class File:
    """A file of the tests: its functions, and those of other files by the names that they have here."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.path = path
        self.module = ".".join(path.relative_to(folder).with_suffix("").parts)
        tree = ast.parse(path.read_text("utf-8"), str(path))
        self.methods = [
            each
            for owner in ast.walk(tree)
            if isinstance(owner, ast.ClassDef)
            for each in owner.body
            if isinstance(each, Function)
        ]
        self.functions = [
            each for each in ast.walk(tree) if isinstance(each, Function) and each not in set(self.methods)
        ]
        self._names = {each.name: Key(self.module, each.name) for each in self.functions}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                self._names |= {
                    alias.asname or alias.name: Key(node.module, alias.name)  # a function, unless it is a module
                    for alias in node.names
                }

    def uses(self, function: Function) -> Iterator[Key]:
        """Yield what a function calls, and what it hands to others to call."""
        for node in ast.walk(function):
            match node:
                case ast.Call(ast.Name(name), args):
                    handed = [each.id for each in args if isinstance(each, ast.Name)]
                    yield from (self._names[each] for each in (name, *handed) if each in self._names)
                case ast.Call(ast.Attribute(_, name)) if name not in _BUILT_IN:
                    yield Key(_METHOD, name)


def find_idle_tests(folder: Path) -> list[Idle]:
    """Return the tests beneath a folder that assert nothing, nor call a helper beneath it that does."""
    files = [File(path, folder) for path in sorted(folder.rglob("*.py"))]
    helpers = {(Key(each.module, function.name), function): each for each in files for function in each.functions}
    helpers |= {(Key(_METHOD, method.name), method): each for each in files for method in each.methods}
    uses = {key: set(file.uses(function)) for (key, function), file in helpers.items()}
    asserting = {key for key, function in helpers if _asserts(function)}
    while more := {key for key, used in uses.items() if key not in asserting and used & asserting}:
        asserting |= more
    return [
        Idle(file.path, function.lineno, function.name)
        for file in files
        if file.path.name.startswith("test_")
        for function in file.functions
        if function.name.startswith("test_") and Key(file.module, function.name) not in asserting
    ]


def _asserts(function: Function) -> bool:
    for node in ast.walk(function):
        match node:
            case ast.Assert(test) if not _is_constant(test):
                return True
            case ast.Raise(exc=ast.Call(ast.Name("AssertionError")) | ast.Name("AssertionError")):
                return True
            case ast.Call(ast.Attribute(ast.Name("pytest"), name)) if name in _OF_PYTEST:
                return True
    return False


def _is_constant(test: ast.expr) -> bool:
    """Whether an expression is the same whatever happens."""
    match test:
        case ast.BoolOp(ast.Or(), values):
            return any(isinstance(each, ast.Constant) and each.value for each in values)
        case _:
            return not any(isinstance(node, ast.Name) for node in ast.walk(test))


if __name__ == "__main__":
    idle = find_idle_tests(TESTS)
    sys.stdout.writelines(f"{each}\n" for each in idle)
    sys.exit(1 if idle else 0)
