"""A replica's whole environment: what whoever launches has, and above it what its launch says."""

from __future__ import annotations

from collections.abc import Mapping

from drumline.engine.protocol import Site
from drumline.errors import EngineError
from drumline.plan.types import Launch, LaunchValue, Secret

# Variables to which a launch adds, instead of replacing what is there.
ADDED = ("no_proxy",)


def complete(launch: Launch, environ: Mapping[str, str], site: Site) -> dict[str, str]:
    """Return every variable of a replica; raise EngineError for a secret that whoever launches does not have."""
    env = {**environ}
    if site.python_dir:
        env["PATH"] = ":".join(filter(None, (site.python_dir, environ.get("PATH"))))
    for name, value in launch.env.items():
        text = _resolve(value, environ, name, launch)
        env[name] = ",".join(filter(None, (text, environ.get(name)))) if name in ADDED else text
    return env


def _resolve(value: LaunchValue, environ: Mapping[str, str], name: str, launch: Launch) -> str:
    if not isinstance(value, Secret):
        return str(value)
    if value.variable not in environ:
        raise EngineError(
            f"{launch.replica.id} needs the secret {name} from the variable {value.variable}, which is not set",
            hint=f"set it where you launch: `export {value.variable}=…`",
        )
    return environ[value.variable]
