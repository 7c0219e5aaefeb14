"""Read a rendered template as processes: the commands and variables of each role."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from drumline.record import Record
from drumline.spec import document
from drumline.spec.dialect.draft import ROLES, plain

_NAME = re.compile(rf"(?:\A|.*-)({'|'.join(ROLES)})-([0-9]{{1,5}})")
_TEMPLATED = ("Job", "ReplicaSet", "ReplicationController", "Deployment", "StatefulSet")
_CONTAINER = "tensorflow"
_GPU = "nvidia.com/gpu"
_CLAIM = "persistentVolumeClaim"
_READ = (
    *("name", "image", "command", "args", "env", "ports", "volumeMounts", "resources", "restartPolicy"),
    "container_name",
)
_READ_OF_POD = ("containers", "volumes", "restartPolicy")


class Process(Record):
    """One replica of a rendered template; `host` is the name that the other replicas connect to."""

    role: str
    number: int
    host: str
    image: str | None
    argv: tuple[str, ...]
    env: Mapping[str, str]
    gpus: int | None
    claims: tuple[str, ...]
    unread: tuple[str, ...]  # descriptions of keys that are not carried over


def processes(text: str, source: str) -> list[Process]:
    """Return every replica that a rendered template would start, in order; raise SpecError if it is not YAML."""
    found: dict[tuple[str, int], Process] = {}
    for each in document.parse_several(text.encode(), f"{source} (rendered)"):
        for process in _of_document(plain(each.root)):
            found.setdefault((process.role, process.number), process)
    order = list(ROLES)
    return [found[key] for key in sorted(found, key=lambda key: (order.index(key[0]), key[1]))]


def _of_document(root: Any) -> Iterator[Process]:
    if not isinstance(root, dict):
        return
    kind, spec, metadata = root.get("kind"), _mapping(root.get("spec")), _mapping(root.get("metadata"))
    if kind in _TEMPLATED:
        spec = _mapping(_mapping(spec.get("template")).get("spec"))
    if kind == "Pod" or kind in _TEMPLATED:
        containers = [each for each in _list(spec.get("containers")) if isinstance(each, dict)]
        main = next(
            (each for each in containers if each.get("name") == _CONTAINER), containers[0] if containers else {}
        )
        yield from _process(str(metadata.get("name", "")), str(metadata.get("name", "")), main, spec)
    for name, service in _mapping(root.get("services")).items():  # in a compose file
        yield from _process(name, str(_mapping(service).get("container_name", name)), _mapping(service), {})


def _process(name: str, host: str, container: Mapping[str, Any], pod: Mapping[str, Any]) -> Iterator[Process]:
    match = _NAME.fullmatch(name)
    if not match:
        return
    resources = _mapping(container.get("resources"))
    limits = _mapping(resources.get("limits"))
    gpus = limits.get(_GPU)
    volumes = {str(_mapping(each).get("name")): _mapping(each) for each in _list(pod.get("volumes"))}
    mounts = {
        str(_mapping(each).get("mountPath")): volumes.get(str(_mapping(each).get("name")), {})
        for each in _list(container.get("volumeMounts"))
    }
    claims = [str(_mapping(each[_CLAIM]).get("claimName")) for each in mounts.values() if _CLAIM in each]
    env, in_volumes = _variables(container.get("env"), list(mounts))
    unread = (
        *(f"`{key}` of the container" for key in container if key not in _READ),
        *(f"`{key}` of the pod" for key in pod if key not in _READ_OF_POD),
        *(f"`resources.limits.{key}`" for key in limits if key != _GPU),
        *(f"`resources.{key}`" for key in resources if key != "limits"),
        *(f"the volume at {path}" for path, each in mounts.items() if _CLAIM not in each and "emptyDir" not in each),
        *(f"the variable {name}, which needs a volume or another object of the cluster," for name in in_volumes),
    )
    yield Process(
        ROLES[match[1]],
        int(match[2]),
        host,
        str(container["image"]) if container.get("image") else None,
        tuple(word for key in ("command", "args") for word in _words(container.get(key))),
        env,
        gpus if isinstance(gpus, int) else None,
        tuple(claims),
        unread,
    )


def _words(value: object) -> Sequence[str]:
    if isinstance(value, str):  # in compose files
        try:
            return shlex.split(value)
        except ValueError:
            return ("sh", "-c", value)
    return [str(word) for word in _list(value)]


def _variables(env: object, mounts: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the variables that drumline does not set itself, and the names of those that name files on a volume."""
    kept, in_volumes = {}, []
    for each in _list(env):
        name, value = str(_mapping(each).get("name")), _mapping(each).get("value")
        if name in ("TF_CONFIG", "OUTPUT_DIR"):
            continue
        if value is None or any(f"{value}/".startswith(f"{path}/") for path in mounts):
            in_volumes.append(name)
        else:
            kept[name] = str(value)
    return kept, in_volumes


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
