"""Read TF_CONFIG in a training script; each error is one sentence."""

from __future__ import annotations

import json
import os
from typing import Any, NamedTuple

from drumline.runtime.start_error import StartError

_ROLES = ("chief", "master", "worker", "ps", "evaluator")


class Config(NamedTuple):
    """The addresses of all replicas, and the role and index of this one."""

    cluster: dict[str, list[str]]
    role: str
    index: int  # type: ignore[assignment]


def read_config(text: str | None = None) -> Config | None:
    """Read TF_CONFIG, or this text instead; None if it has no `cluster`. Raise StartError if it is wrong."""
    text = os.environ.get("TF_CONFIG", "") if text is None else text
    if not text.strip():
        return None
    try:
        config = json.loads(text)
    except ValueError as error:
        raise _wrong(f"is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise _wrong(f"must be an object with `cluster` and `task`, not {text.strip()[:40]}")
    if not config.get("cluster"):
        return None
    members = _cluster(config["cluster"])
    role, index = _task(config.get("task"))
    size = len(members.get(role, ()))
    if role != "evaluator" and index >= size:  # an evaluator need not be listed
        have = ", ".join(f"{len(addresses)} {name}" for name, addresses in members.items())
        raise _wrong(f"says that this is {role} {index}, and the cluster has {have}")
    return Config(members, role, index)


def _cluster(cluster: Any) -> dict[str, list[str]]:
    if not isinstance(cluster, dict):
        raise _wrong("needs a `cluster` that is an object of roles and their addresses")
    for role, addresses in cluster.items():
        if role not in _ROLES:
            raise _wrong(f"has the role `{role}`; known are chief, worker, ps and evaluator")
        if not isinstance(addresses, list) or not addresses:
            raise _wrong(f"needs a list of `host:port` for `{role}`")
        for address in addresses:
            if not isinstance(address, str) or not address.rpartition(":")[2].isdecimal():
                raise _wrong(f"has the address {json.dumps(address)} for `{role}`, which is not `host:port`")
        if role in ("chief", "master", "evaluator") and len(addresses) > 1:
            raise _wrong(f"has {len(addresses)} of `{role}`, and there is at most one")
    return cluster


def _task(task: Any) -> tuple[str, int]:
    if not isinstance(task, dict) or "type" not in task or "index" not in task:
        raise _wrong('does not name the task of this process: "task": {"type": "worker", "index": 0}')
    role, index = task["type"], str(task["index"])
    if role not in _ROLES:
        raise _wrong(f"says that this is {json.dumps(role)}; known are chief, worker, ps and evaluator")
    if not index.isdecimal():
        raise _wrong(f"has {json.dumps(task['index'])} as the task's index, which is not a number from 0")
    return role, int(index)


def _wrong(what: str) -> StartError:
    return StartError(f"TF_CONFIG {what} (`drumline tfconfig check` names every problem)")
