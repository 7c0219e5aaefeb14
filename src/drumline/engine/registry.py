"""Engines by name; each is imported when it is asked for and not before."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from drumline.engine.protocol import Engine, Site
from drumline.errors import EngineError
from drumline.plan.engines import ENGINES, ON_CLUSTERS

BUILT_IN = {
    "local": "drumline.engine.local",
    "fake": "drumline.engine.fake",
    "ssh": "drumline.engine.ssh",
    **dict.fromkeys(ON_CLUSTERS, "drumline.engine.kubernetes"),
}


def get_ready() -> None:
    """Import what most runs need."""
    import_module(BUILT_IN["local"]).get_ready()


def open_engine(name: str, site: Site) -> Engine:
    """Return the engine of this name."""
    return cast("Engine", import_module(_package(name)).make_engine(site))


def _package(name: str) -> str:
    if name not in BUILT_IN:
        raise EngineError(
            f"this version of drumline cannot run on `{name}`",
            hint=f"it can run on: {', '.join(ENGINES)}",
        )
    return BUILT_IN[name]
