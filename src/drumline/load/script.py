"""Find scripts of a project that set TF_CONFIG themselves instead of reading the TF_CONFIG of drumline."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import islice

from drumline.errors import Problem
from drumline.plan.types import Plan
from drumline.runtime.private import open_regular

_MOST_BYTES = 1 << 20
_MOST_FILES = 200
_MOST_MODULES = 2000  # that one file may import
_MOST_PARTS = 20  # of a module's name
# An item of os.environ, its `update` and `|=`, and `os.putenv`.
_SETS = (
    rb"""(?m)^[^#\n]*(?:environ\[\s*["']TF_CONFIG["']\s*\]\s*=(?!=)"""
    rb"""|environ(?:\.update\(|\s*\|=)(?:(?!environ)[\s\S]){0,2000}?(?<![\w.])["']?TF_CONFIG["']?\s*[:=](?!=)"""
    rb"""|putenv\(\s*["']TF_CONFIG["']\s*,)"""
)
_PUTENV = rb"""putenv\(\s*["']TF_CONFIG["']\s*,"""
# A script that first checks whether TF_CONFIG is set is fine: it sets TF_CONFIG only if drumline did not.
_CHECKS = rb"""["']TF_CONFIG["']\s*(?:\)|,|(?:not\s+)?in\b)"""
_IMPORTS = (
    rb"(?m)^[ \t]*(?:from[ \t]+(?P<package>\.*[\w.]*)[ \t]+import[ \t]+\(?(?P<names>[\w \t,.*\\\n]+)"
    rb"|import[ \t]+(?P<modules>[\w., \t]+))"
)
_MAIN = rb"(?m)^if[ \t(]+__name__\b"


def find_script_warnings(plan: Plan, directory: str) -> Iterator[Problem]:
    """Yield the lines where a script, or a module of the project that it imports, replaces TF_CONFIG."""
    if plan.framework != "tensorflow" or len(plan.replicas) == 1:
        return
    folder = os.path.join(directory, plan.workdir)  # noqa: PTH118
    seen: set[str] = set()
    for script, root in dict.fromkeys(found for each in plan.replicas for found in _scripts(each.argv)):
        where = os.path.join(folder, root)  # noqa: PTH118
        yield from _check(script, folder, where, importer=None, seen=seen)


def _scripts(argv: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield the Python files that a command runs, each with its import folder; relative to the workdir."""
    for word in argv:
        for name in re.split(r"[\s'\"();&|<>]", word):
            if name.endswith(".py") and name != ".py":
                yield name, os.path.dirname(name)  # noqa: PTH120
    for module in re.findall(r"(?:^|\s)-m\s+([A-Za-z_][\w.]*)", " ".join(argv)):
        path = module.replace(".", "/")
        yield from ((name, "") for name in (f"{path}.py", f"{path}/__main__.py"))


def _check(name: str, folder: str, root: str, *, importer: str | None, seen: set[str]) -> Iterator[Problem]:
    """Yield a problem for a file and for each module of the project that it imports, if they set TF_CONFIG.

    `seen` has the files that were checked already; at most `_MOST_FILES` files are checked.
    """
    if name in seen or len(seen) >= _MOST_FILES:
        return
    text = _read(os.path.join(folder, name))  # noqa: PTH118
    if text is None:
        return
    seen.add(name)
    if importer and (main := re.search(_MAIN, text)):
        text = text[: main.start()]  # this part does not run in an imported module
    found = re.search(_SETS, text) if b"TF_CONFIG" in text else None
    if found and not re.search(_CHECKS, re.sub(_PUTENV, b"", text)):
        by = f", and is imported by {importer}" if importer else ""
        message = f"sets TF_CONFIG itself{by}, so that all replicas have the same identity; remove that"
        yield Problem(name, text.count(b"\n", 0, found.end()) + 1, "", message)
    for path in dict.fromkeys(_imported(text, name, folder, root)):
        yield from _check(path, folder, root, importer=name, seen=seen)


def _imported(text: bytes, name: str, folder: str, root: str) -> Iterator[str]:
    """Yield the files of the project that may be imported, relative to the folder."""
    for base, module in islice(_modules(text, name, folder, root), _MOST_MODULES):
        parts = module.split(".", _MOST_PARTS)[:_MOST_PARTS] if module else []
        for end in range(1, len(parts) + 1):
            path = os.path.join(base, *parts[:end])  # noqa: PTH118
            for file in (f"{path}.py", os.path.join(path, "__init__.py")):  # noqa: PTH118
                if os.path.isfile(file):  # noqa: PTH113
                    yield os.path.relpath(file, folder)


def _modules(text: bytes, name: str, folder: str, root: str) -> Iterator[tuple[str, str]]:
    """Yield the import folder and the name of each imported module."""
    here = os.path.dirname(os.path.join(folder, name))  # noqa: PTH118, PTH120
    for match in re.finditer(_IMPORTS, text):
        if modules := match["modules"]:
            several = [(root, each.split()[0].decode()) for each in modules.split(b",") if each.split()]
        else:
            package = match["package"].decode(errors="replace")
            dots = len(package) - len(package.lstrip("."))
            up = [".."] * min(dots - 1, _MOST_PARTS)
            base = os.path.normpath(os.path.join(here, *up)) if dots else root  # noqa: PTH118
            names = re.findall(r"[A-Za-z_]\w*", match["names"].decode(errors="replace"))
            several = [(base, ".".join(filter(None, (package.lstrip("."), each)))) for each in ("", *names)]
        yield from several


def _read(path: str) -> bytes | None:
    try:
        with open(path, "rb", opener=open_regular) as stream:
            return stream.read(_MOST_BYTES)
    except (OSError, ValueError):
        return None
