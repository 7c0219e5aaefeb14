"""Each claim of docs/security.md names the tests that hold it, and these exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/security.md").read_text()
CLAIMS = re.findall(r"^- \*\*(C\d+)\.\*\*", PAGE, re.MULTILINE)
TESTS = re.findall(r"^\| (C\d+) \| `(tests/\S+)::(\w+)` \|$", PAGE, re.MULTILINE)


def test_claims_are_numbered_and_each_is_tested() -> None:
    assert [f"C{number}" for number in range(1, len(CLAIMS) + 1)] == CLAIMS
    assert len(CLAIMS) >= 20
    assert {claim for claim, _, _ in TESTS} == set(CLAIMS)


def test_the_tests_of_claims_exist() -> None:
    missing = [f"{file}::{name}" for _, file, name in TESTS if name not in _functions(ROOT / file)]
    assert missing == []


def _functions(path: Path) -> set[str]:
    if not path.exists():
        return set()
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}
