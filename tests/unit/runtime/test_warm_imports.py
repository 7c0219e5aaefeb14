"""Modules that may be loaded in a process from which replicas are forked."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType

from drumline.runtime.warm_imports import Unforkable, check_origins


def module(name: str, path: str) -> ModuleType:
    made = ModuleType(name)
    made.__file__ = path
    return made


def reason_against(name: str, path: str) -> str | None:
    """Return why an interpreter with this module is unfit; None if it is fit."""
    try:
        check_origins({name: module(name, path)})
    except Unforkable as error:
        return str(error)
    return None


def test_the_users_sitecustomize_makes_an_environment_unfit(tmp_path: Path) -> None:
    own = str(tmp_path / "sitecustomize.py")
    assert reason_against("sitecustomize", own) == f"there is a sitecustomize, {own}"


def test_the_sitecustomize_of_a_linux_distribution_keeps_an_environment_fit() -> None:
    path = str(Path(os.__file__).with_name("sitecustomize.py"))  # Debian links it to /etc
    assert reason_against("sitecustomize", path) is None


def test_a_module_from_outside_the_environment_makes_the_environment_unfit(tmp_path: Path) -> None:
    path = str(tmp_path / "mine.py")
    assert reason_against("mine", path) == f"mine would be imported from {path}, which is not the environment's"
