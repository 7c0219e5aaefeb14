"""Engines by name; each is imported when it is asked for and not before."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from drumline.engine.protocol import Engine, Site
from drumline.errors import EngineError
from drumline.plan.engines import ENGINES, ON_CLUSTERS

if TYPE_CHECKING:
    from drumline.engine.health import Examine
    from drumline.engine.output import Output, Written

_MODULES = {
    "local": "drumline.engine.local",
    "fake": "drumline.engine.fake",
    "ssh": "drumline.engine.ssh",
    **dict.fromkeys(ON_CLUSTERS, "drumline.engine.kubernetes"),
}


def find_doctor(name: str) -> Examine:
    """Who looks at the place where an engine of this name runs its replicas."""
    return cast("Examine", _part(name, "doctor").examine)


def open_output(written: Written) -> Output:
    """What a run has written, where its engine let it write."""
    return cast("Output", _part(written.plan.engine, "output").open_output(written))


def _part(name: str, part: str) -> Any:
    """A module of an engine that only few commands need."""
    package = _package(name)
    try:
        return import_module(f"{package}.{part}")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("drumline"):
            raise EngineError(f"`{name}` has nothing of the kind yet") from None
        raise EngineError(
            f"`{name}` needs {error.name}, which is not installed",
            hint=f"`pip install 'drumline[{package.rpartition('.')[2]}]'`",
        ) from None


def get_ready() -> None:
    """Import what most runs need."""
    import_module(_MODULES["local"]).get_ready()


def open_engine(name: str, site: Site) -> Engine:
    """Return the engine of this name."""
    return cast("Engine", import_module(_package(name)).make_engine(site))


def _package(name: str) -> str:
    if name not in _MODULES:
        raise EngineError(
            f"this version of drumline cannot run on `{name}`",
            hint=f"it can run on: {', '.join(ENGINES)}",
        )
    return _MODULES[name]
