"""Modules that a training script imports run on every Python that an environment may have."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from drumline import runtime
from drumline.plan.environment import OLDEST_PYTHON

PACKAGE = Path(runtime.__file__).parent
# Run by drumline's own Python, not by that of replicas.
_OF_DRUMLINE = {"keeper.py", "prepare.py", "environment.py", "install.py", "lock.py"}
_OF_IMAGES = {"ready.py"}  # run by the Python of an image, of any age
_APART = _OF_DRUMLINE | _OF_IMAGES
IMPORTED = sorted({path for path in PACKAGE.glob("*.py") if path.name not in _APART} | {PACKAGE.parent / "__init__.py"})


@pytest.mark.parametrize("path", IMPORTED, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_the_oldest_supported_python_can_parse_the_runtime(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, OLDEST_PYTHON))
    assert not list(_too_new(tree))


def test_the_script_that_makes_a_pod_ready_is_parsed_by_very_old_pythons() -> None:
    for name in _OF_IMAGES:
        tree = ast.parse((PACKAGE / name).read_text(), feature_version=(3, 6))
        assert not [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
        for node in ast.walk(tree):  # an old Python evaluates only plain names
            if isinstance(node, ast.arg) and node.annotation:
                assert isinstance(node.annotation, ast.Name | ast.Constant), ast.unparse(node)


def _too_new(tree: ast.Module) -> Iterator[str]:
    """Yield code that Python 3.9 parses and cannot execute: unions as values, newer parts of the standard library."""
    lazy = any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.id if isinstance(node.func, ast.Name) else ""
            if name == "isinstance" and any(isinstance(each, ast.BinOp) for each in node.args):
                yield f"line {node.lineno}: isinstance with a union"
            if name == "zip" and any(keyword.arg == "strict" for keyword in node.keywords):
                yield f"line {node.lineno}: zip(strict)"
        if isinstance(node, ast.ImportFrom) and node.module in ("tomllib", "enum"):
            yield f"line {node.lineno}: {node.module}"
        if isinstance(node, ast.AnnAssign | ast.FunctionDef) and not lazy:
            yield f"line {node.lineno}: annotations are evaluated"
