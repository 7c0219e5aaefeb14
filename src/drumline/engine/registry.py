"""Engines by name; each is imported only when it is used."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

from drumline.engine.plugins import Plugin, find_plugins
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
_NAME = r"[a-z][a-z0-9-]{0,30}"  # of other engines; `default` is a key beside them
_HIDDEN = ("fake",)  # trains nothing: only a plan can name it


def engine_names() -> tuple[str, ...]:
    """Return the names of the engines that a spec or `--on` can name, drumline's own first."""
    return (*(name for name in BUILT_IN if name not in _HIDDEN), *_plugins())


def engine_options() -> Mapping[str, EngineOptions]:
    """Return the options module of each engine that a spec can name."""
    return {name: find_options(name) for name in engine_names()}


def find_options(name: str) -> EngineOptions:
    """Return the options module of an engine; raise EngineError if the engine is not known."""
    return cast("EngineOptions", _import(name, ".options"))


def open_engine(name: str, site: Site) -> Engine:
    """Return the engine of this name; raise EngineError for one that is not known."""
    return cast("Engine", _import(name, "", needs="make_engine").make_engine(site))


def import_session() -> None:
    """Import the session of the local engine, which most runs use."""
    import_module(BUILT_IN["local"]).import_session()


@cache
def _plugins() -> Mapping[str, Plugin]:
    """Return the engines of other packages by name; raise EngineError for names that are taken or invalid."""
    found: dict[str, Plugin] = {}
    owners = dict.fromkeys(BUILT_IN, "drumline")
    for plugin in find_plugins(sys.path):
        if not re.fullmatch(_NAME, plugin.name) or plugin.name == "default":
            raise EngineError(
                f"the package {plugin.distribution} has an engine with an invalid name: `{plugin.name}`",
                hint=f"`pip uninstall {plugin.distribution}`, or another version of it",
            )
        owner = owners.setdefault(plugin.name, plugin.distribution)
        if owner != plugin.distribution:
            raise EngineError(
                f"two packages have an engine `{plugin.name}`: {owner} and {plugin.distribution}",
                hint=f"`pip uninstall {plugin.distribution}`",
            )
        found[plugin.name] = plugin
    return found


def _import(name: str, module: str, needs: str = "Options") -> Any:
    """Import a module of an engine; raise EngineError if a plug-in's module does not define `needs`."""
    if name in BUILT_IN:
        return import_module(f"{BUILT_IN[name]}{module}")
    if name not in _plugins():
        raise EngineError(
            f"this version of drumline cannot run on `{name}`",
            hint=f"it can run on: {', '.join(engine_names())}",
        )
    return _import_plugin(_plugins()[name], module, needs)


def _import_plugin(plugin: Plugin, module: str, needs: str) -> ModuleType:
    wrong = f"the engine `{plugin.name}` of the package {plugin.distribution} cannot be used"
    hint = f"`pip uninstall {plugin.distribution}`, or another version of it"
    try:
        found = import_module(f"{plugin.package}{module}")
    except Exception as error:  # noqa: BLE001 - the code of others may raise anything
        raise EngineError(f"{wrong}: {type(error).__name__}: {error}", hint=hint) from None
    if not hasattr(found, needs):
        raise EngineError(f"{wrong}: {plugin.package}{module} has no `{needs}`", hint=hint)
    return found
