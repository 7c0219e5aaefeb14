"""No module outside `engine/` knows an engine: by syntax tree, none imports an engine's package or names an engine."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import drumline
from drumline.engine.registry import BUILT_IN

SOURCE = Path(drumline.__file__).parent
NAMES = set(BUILT_IN)
PACKAGES = set(BUILT_IN.values())
DEFAULT = "default.py"  # the one default
DIALECTS = "spec/dialect/"  # they translate specs of other systems for named engines


def modules() -> list[str]:
    """Every module outside `engine/`, as a path below `drumline`."""
    found = (path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py"))
    return sorted(name for name in found if not name.startswith(("engine/", DIALECTS, "cli/templates/")))


def knowledge(tree: ast.AST) -> Iterator[str]:
    """Say where a module imports an engine's package, or has a string equal to an engine's name."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                imported = [each.name for each in names]
            case ast.ImportFrom(module=str(module), level=0, names=names):
                imported = [module, *(f"{module}.{each.name}" for each in names)]
            case ast.Constant(value=str(text)):
                imported = [text] if text.startswith("drumline.engine.") else []  # for `import_module`
                if text in NAMES:
                    yield f"line {node.lineno}: names the engine `{text}`"
            case _:
                continue
        for name in imported:
            if any(name == package or name.startswith(f"{package}.") for package in PACKAGES):
                yield f"line {node.lineno}: imports {name}"
                break


def found_in(name: str) -> list[str]:
    return list(knowledge(ast.parse((SOURCE / name).read_text("utf-8"))))


@pytest.mark.parametrize("name", [name for name in modules() if name != DEFAULT])
def test_a_module_outside_engine_knows_no_engine(name: str) -> None:
    assert found_in(name) == []


def test_the_default_is_one_engine() -> None:
    assert len(found_in(DEFAULT)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "import drumline.engine.ssh.reach",
        "from drumline.engine import ssh",
        "from drumline.engine.kubernetes.names import output_claim",
        'import_module("drumline.engine.local")',
        'if plan.engine == "tfjob": pass',
        'match name:\n    case "fake": pass',
    ],
)
def test_knowledge_of_an_engine_is_seen(text: str) -> None:
    assert len(list(knowledge(ast.parse(text)))) == 1


def test_the_names_are_those_that_a_user_can_write() -> None:
    assert {"local", "ssh", "kubernetes", "jobset", "tfjob", "fake"} == NAMES
    assert {"drumline.engine.local", "drumline.engine.ssh", "drumline.engine.kubernetes"} < PACKAGES
