"""What is imported is declared: in the base, or in the extra of the feature that needs it."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import drumline

SOURCE = Path(drumline.__file__).parent
PROJECT = Path(__file__).parents[2] / "pyproject.toml"
# Modules that are not called like their distributions.
DISTRIBUTIONS = {"yaml": "pyyaml", "pynvml": "nvidia-ml-py"}
# In the standard library of a newer Python.
NEWER = {"annotationlib"}
# Installed by the user, in the environment of a training script.
FRAMEWORKS = {"tensorflow", "keras", "tf_keras", "torch", "jax", "flax", "optax", "numpy"}
TEMPLATES = SOURCE / "cli" / "templates"


def imported(path: Path) -> Iterator[str]:
    """The top-level name of every import in a file, also of those within functions."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"), str(path))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module.partition(".")[0]


def declared() -> dict[str, str]:
    """The requirement of every distribution that the base or an extra names."""
    project = tomllib.loads(PROJECT.read_text("utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    requirements = [*project["dependencies"], *(each for extra in extras for each in extra)]
    return {re.split(r"[\[<>=~! ]", each, maxsplit=1)[0].lower(): each for each in requirements}


def test_every_import_is_of_the_standard_library_of_drumline_or_declared() -> None:
    known = sys.stdlib_module_names | NEWER | {"drumline"}
    distributions = declared()
    undeclared = {
        f"{path.relative_to(SOURCE)}: {name}"
        for path in SOURCE.rglob("*.py")
        for name in imported(path)
        if name not in known and DISTRIBUTIONS.get(name, name) not in distributions
        if not (name in FRAMEWORKS and path.is_relative_to(SOURCE / "runtime"))
        if not (name in FRAMEWORKS and path.is_relative_to(TEMPLATES))
    }
    assert not undeclared


def test_a_version_of_jinja_with_known_escapes_from_its_sandbox_is_not_accepted() -> None:
    assert ">=3.1.6" in declared()["jinja2"]
