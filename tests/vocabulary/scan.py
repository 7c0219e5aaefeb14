"""Find retired words in the texts and names of the repository."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import NamedTuple

from vocabulary import exceptions, retired

ROOT = Path(__file__).parents[2]
_TREES = ("src", "docs", "examples", "tests", "bench", "scripts", ".github", ".ci")
_FILES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "Makefile", "pyproject.toml", "mkdocs.yml")
_TEXTS = ("", ".css", ".jinja", ".md", ".py", ".sh", ".svg", ".toml", ".txt", ".yaml", ".yml")
# Output of frameworks and of older versions of drumline, as it was recorded.
_RECORDED = ("tests/cascades/lines/*", "tests/stores/*/shown/*", "tests/dialects/*")
_WORD = re.compile(rf"\b(?:{'|'.join(retired.PERSONS)}|(?:{'|'.join(retired.FORMER)})s?)\b", re.IGNORECASE)
_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")
_NAMES = {f"{word}{end}" for word in (*retired.PERSONS, *retired.FORMER, *retired.IN_NAMES) for end in ("", "s")}


class Found(NamedTuple):
    """A retired word."""

    kind: str  # `text` or `name`
    path: str
    line: int
    word: str
    context: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.word}: {self.context.strip()[:140]}"


@cache
def scan() -> tuple[tuple[Found, ...], frozenset[exceptions.Exempt]]:
    """Return all retired words that are not exempt, and the exceptions that were used."""
    found, used = [], set()
    for path in files():
        for each in (*find_in_text(path, ROOT), *find_in_names(path, ROOT)):
            several = exceptions.IN_TEXTS if each.kind == "text" else exceptions.IN_NAMES
            exempt = [one for one in several if fnmatch(each.path, one.path) and one.matches(each.context)]
            used.update(exempt)
            if not exempt:
                found.append(each)
    return tuple(found), frozenset(used)


def files() -> Iterator[Path]:
    """Yield every text of the repository that people write."""
    trees = (path for tree in _TREES for path in sorted((ROOT / tree).rglob("*")))
    for path in (*(ROOT / name for name in _FILES), *trees):
        name = str(path.relative_to(ROOT))
        is_recorded = any(fnmatch(name, pattern) for pattern in _RECORDED)
        if path.is_file() and path.suffix in _TEXTS and "__pycache__" not in path.parts and not is_recorded:
            yield path


def find_in_text(path: Path, root: Path) -> Iterator[Found]:
    """Yield the retired words of a text, whatever its language."""
    for number, line in enumerate(path.read_text("utf-8", "replace").splitlines(), start=1):
        for word in _WORD.findall(line):
            yield Found("text", str(path.relative_to(root)), number, word, line)


def find_in_names(path: Path, root: Path) -> Iterator[Found]:
    """Yield the names that a Python file defines and that contain a retired word, by its syntax tree."""
    if path.suffix != ".py":
        return
    name, is_source = str(path.relative_to(root)), path.relative_to(root).parts[0] == "src"
    for line, defined, is_whole in _defined(path):
        parts = [part.lower() for part in _PART.findall(defined)]
        bad = [part for part in parts if part in _NAMES]
        if is_whole and is_source and parts in [[word] for word in retired.NOT_ALONE]:
            bad = parts
        yield from (Found("name", name, line, word, defined) for word in dict.fromkeys(bad))


def _defined(path: Path) -> Iterator[tuple[int, str, bool]]:
    """Yield the line and every name that a file defines, and whether it names a module or class."""
    yield 1, path.stem, True
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        match node:
            case ast.ClassDef(name=name):
                yield node.lineno, name, True
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.arg(arg=name):
                yield node.lineno, name, False
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name, False
            case ast.ExceptHandler(name=str(name)) | ast.alias(asname=str(name)):
                yield node.lineno, name, False
