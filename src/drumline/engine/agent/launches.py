"""Launches and incarnations of replicas as they are sent to an agent and back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from drumline.plan.codec import from_data, to_data
from drumline.plan.types import Extended, Launch, LaunchValue, Place, Replica, ReplicaId, Secret
from drumline.run.incarnation import Incarnation

_INCARNATION = re.compile(r"(\S{1,100}) ([0-9]{1,9}) ([0-9]{1,9})", re.ASCII)


def incarnation_to_text(incarnation: Incarnation) -> str:
    """Return an incarnation as text: `worker.0 2 0`, its replica, attempt and incarnation."""
    return f"{incarnation.replica} {incarnation.attempt} {incarnation.incarnation}"


def incarnation_from_text(text: str) -> Incarnation:
    """Parse what `incarnation_to_text` wrote; raise ValueError for anything else."""
    found = _INCARNATION.fullmatch(text)
    if found is None:
        raise ValueError(f"not a replica: {text[:100]!r}")
    return Incarnation(ReplicaId.parse(found[1]), int(found[2]), int(found[3]))


def launch_to_data(launch: Launch, secrets: Mapping[str, str]) -> dict[str, Any]:
    """Return a launch for a host: with the values of secrets; variables that it extends are read on the host.

    A secret that is not set on this machine is sent as its name only: the host refuses to start a replica with it, and
    a replica that runs already does not need it.
    """
    return {
        "replica": to_data(launch.replica.replace(env={})),
        "attempt": launch.attempt,
        "place": to_data(launch.place),
        "env": {name: _value(value, secrets) for name, value in launch.env.items()},
        "incarnation": launch.incarnation,
    }


def launch_from_data(data: Mapping[str, Any]) -> Launch:
    """Parse what `launch_to_data` wrote."""
    env: dict[str, LaunchValue] = {name: _read(value) for name, value in data["env"].items()}
    return Launch(
        from_data(Replica, data["replica"]),
        data["attempt"],
        from_data(Place, data["place"]),
        env,
        data["incarnation"],
    )


def _value(value: LaunchValue, secrets: Mapping[str, str]) -> str | list[object]:
    if isinstance(value, Extended):
        return [value.text, value.separator, list(value.variables)]
    if isinstance(value, Secret):
        return secrets.get(value.variable) or [value.variable]
    return str(value)


def _read(value: Any) -> LaunchValue:
    if isinstance(value, str):
        return value
    return Secret(value[0]) if len(value) == 1 else Extended(value[0], value[1], tuple(value[2]))
