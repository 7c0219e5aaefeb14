"""docs/architecture.md describes the actual packages, imports, layers and modules."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from docs.pages import ROOT, read_table, sections

HOUSE = ROOT / "src" / "drumline"
PAGE = ROOT / "docs" / "architecture.md"
WAY = sections(PAGE)["Packages"]
ROWS = {row[0].strip("`"): row for row in read_table(WAY)}
ISLAND = "runtime"


def layers_of(text: str) -> list[set[str]]:
    """Return the layers of `a > b | c > d`, from the top down."""
    return [set(floor.split(" | ")) for floor in text.split(" > ")]


def drawings() -> dict[str, list[set[str]]]:
    """Return the layers that the page draws, for drumline and for each package with a drawing."""
    block = next(block for block in re.findall(r"```text\n(.*?)```", WAY, re.DOTALL) if " > " in block)
    whole, *parts = block.splitlines()
    named = (part.partition(": ") for part in parts)
    return {"drumline": layers_of(whole), **{f"drumline.{name}": layers_of(text) for name, _, text in named}}


def rooms_of(folder: Path) -> set[str]:
    """Return the names of the packages and modules of a folder."""
    found = {path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    return {name for name in found if not name.startswith("__")}


def packages_in(folder: Path) -> Iterator[Path]:
    return (path.parent for path in folder.rglob("__init__.py") if path.parent != folder)


def imports_of(package: str) -> set[str]:
    """Return the packages of drumline that modules of this package import, anywhere in their text."""
    names: set[str] = set()
    for path in (HOUSE / package).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())) if "templates" not in path.parts else ():
            if isinstance(node, ast.ImportFrom) and node.module == "drumline":
                names.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("drumline."):
                names.add((node.module or "").split(".")[1])
            elif isinstance(node, ast.Import):
                names.update(alias.name.split(".")[1] for alias in node.names if alias.name.startswith("drumline."))
    return (names & rooms_of(HOUSE)) - {package}


def test_every_package_has_a_row_that_names_all_its_subpackages() -> None:
    assert set(ROWS) == {path.name for path in HOUSE.iterdir() if (path / "__init__.py").exists()}
    missing = [
        str(inner.relative_to(HOUSE))
        for name, row in ROWS.items()
        for inner in packages_in(HOUSE / name)
        if f"`{inner.name}`" not in row[2]
    ]
    assert not missing


def test_every_row_lists_the_imports_of_its_package() -> None:
    assert {name: set(row[3].split()) for name, row in ROWS.items()} == {name: imports_of(name) for name in ROWS}


def test_the_drawn_layers_are_those_that_import_linter_enforces() -> None:
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    held = {
        container: [set(layer.split(" | ")) for layer in contract["layers"]]
        for contract in linter["contracts"]
        if contract["type"] == "layers"
        for container in contract["containers"]
    }
    assert drawings() == held


def test_every_module_is_in_the_drawing_of_its_package() -> None:
    for container, floors in drawings().items():
        folder = HOUSE.parent / container.replace(".", "/")
        assert rooms_of(folder) - {ISLAND} == set().union(*floors), container


def test_every_module_that_the_page_names_exists() -> None:
    known = {str(path.relative_to(HOUSE)) for path in HOUSE.rglob("*.py")}
    named = set(re.findall(r"\b[a-z][a-z_]*(?:/[a-z][a-z_]*)*\.py\b", PAGE.read_text()))
    missing = [
        name
        for name in named
        if not (ROOT / name).exists() and not any(path == name or path.endswith(f"/{name}") for path in known)
    ]
    assert not missing


def test_every_folder_of_tests_has_a_row() -> None:
    folders = {f"tests/{path.parent.name}" for path in (ROOT / "tests").glob("*/*.py")} | {"bench"}
    assert {row[0].strip("`") for row in read_table(sections(PAGE)["Tests"])} == folders
