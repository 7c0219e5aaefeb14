"""Engines by name; each is imported when it is asked for and not before."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, cast

from drumline.engine.plugins import find_plugins
from drumline.engine.protocol import Engine, Site
from drumline.errors import EngineError

if TYPE_CHECKING:
    from drumline.engine.options import EngineOptions

BUILT_IN = {
    "local": "drumline.engine.local",
    "fake": "drumline.engine.fake",
    "ssh": "drumline.engine.ssh",
    **dict.fromkeys(("kubernetes", "jobset", "tfjob"), "drumline.engine.kubernetes"),
}
_HIDDEN = ("fake",)  # trains nothing: only a plan can name it


@cache
def _packages() -> Mapping[str, str]:
    """Return the packages of all engines by name: drumline's own, and those of entry points `drumline.engines`."""
    others = {name: package for name, package in find_plugins(sys.path).items() if name not in BUILT_IN}
    return {**BUILT_IN, **others}


def engine_names() -> tuple[str, ...]:
    """Return the engines that a spec or `--on` can name, drumline's own first."""
    return tuple(name for name in _packages() if name not in _HIDDEN)


def engine_options() -> Mapping[str, EngineOptions]:
    """Return what each of these engines has for its block of the spec."""
    return {name: find_options(name) for name in engine_names()}


def find_options(name: str) -> EngineOptions:
    """Return what an engine has for its block of the spec; raise EngineError for one that is not known."""
    return cast("EngineOptions", import_module(f"{_package(name)}.options"))


def get_ready() -> None:
    """Import what most runs need."""
    import_module(BUILT_IN["local"]).get_ready()


def open_engine(name: str, site: Site) -> Engine:
    """Return the engine of this name."""
    return cast("Engine", import_module(_package(name)).make_engine(site))


def _package(name: str) -> str:
    if name in BUILT_IN:
        return BUILT_IN[name]
    if name not in _packages():
        raise EngineError(
            f"this version of drumline cannot run on `{name}`",
            hint=f"it can run on: {', '.join(engine_names())}",
        )
    return _packages()[name]
