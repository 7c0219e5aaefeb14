"""The error of an engine without a library that it needs has the command that installs it."""

from __future__ import annotations

import importlib

import pytest

from drumline.engine.extra import needed_by
from drumline.errors import EngineError


def test_a_library_that_is_not_installed_is_named_with_the_extra_that_installs_it() -> None:
    with pytest.raises(EngineError) as caught, needed_by("ssh", "remote"):
        importlib.import_module("no_such_library")
    assert caught.value.message == "`ssh` needs no_such_library, which is not installed"
    assert caught.value.hint == "`pip install 'drumline[remote]'`"


def test_a_missing_module_of_drumline_itself_is_an_unexpected_error() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"drumline\.no_such_module"), needed_by("ssh", "ssh"):
        importlib.import_module("drumline.no_such_module")


def test_an_import_that_fails_without_the_name_of_a_library_is_reported_too() -> None:
    with pytest.raises(EngineError, match="which is not installed"), needed_by("ssh", "ssh"):
        raise ModuleNotFoundError
