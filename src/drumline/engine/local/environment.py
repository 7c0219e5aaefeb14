"""A replica's whole environment: the variables of the launching process, overridden by those of its launch."""

from __future__ import annotations

from collections.abc import Mapping

from drumline.errors import EngineError
from drumline.plan.types import Extended, Launch, LaunchValue, Secret


def complete_environment(launch: Launch, environ: Mapping[str, str]) -> dict[str, str]:
    """Return every variable of a replica; raise EngineError for a secret that is not set."""
    own = {name: _resolve(value, environ, name, launch) for name, value in launch.env.items()}
    return {**environ, **own}


def _resolve(value: LaunchValue, environ: Mapping[str, str], name: str, launch: Launch) -> str:
    match value:
        case Extended():
            present = (environ.get(variable, "") for variable in value.variables)
            return value.separator.join([value.text, *filter(None, present)])
        case Secret() if not environ.get(value.variable):
            raise EngineError(
                f"{launch.replica.id} needs the secret {name} from the variable {value.variable}, which is not set",
                hint=f"set it where you launch: `export {value.variable}=…`",
            )
        case Secret():
            return environ[value.variable]
        case _:
            return str(value)
