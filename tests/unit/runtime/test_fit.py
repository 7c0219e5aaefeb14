"""What may be loaded in a process that replicas are forked from."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType

import pytest

from drumline.runtime.fit import Unfit, check_origins


def module(name: str, path: str) -> ModuleType:
    made = ModuleType(name)
    made.__file__ = path
    return made


def test_a_sitecustomize_of_ones_own_makes_it_unfit(tmp_path: Path) -> None:
    own = str(tmp_path / "sitecustomize.py")
    with pytest.raises(Unfit, match=f"there is a sitecustomize, {own}"):
        check_origins({"sitecustomize": module("sitecustomize", own)})


def test_that_of_a_distribution_which_links_it_into_pythons_library_does_not() -> None:
    path = str(Path(os.__file__).with_name("sitecustomize.py"))  # Debian links it to /etc
    check_origins({"sitecustomize": module("sitecustomize", path)})


def test_what_is_not_the_environments_makes_it_unfit(tmp_path: Path) -> None:
    path = str(tmp_path / "mine.py")
    with pytest.raises(Unfit, match=f"mine would be imported from {path}, which is not the environment's"):
        check_origins({"mine": module("mine", path)})
