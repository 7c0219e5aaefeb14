"""A plan as JSON and back, equal: the first line of what a run leaves behind. Versioned from the first day."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, cast, get_args, get_origin, get_type_hints

from drumline.plan.types import Plan, ReplicaId, Secret

if TYPE_CHECKING:
    from drumline.plan.cluster import Cluster
    from drumline.plan.hosts import Hosts

VERSION = 1
_MOST = 1 << 63  # no size in bytes and no time in seconds is as large


def plan_to_json(plan: Plan) -> str:
    """Write a plan down. Secrets are named, never written."""
    return json.dumps({"v": VERSION, **cast("dict[str, Any]", to_data(plan))}, ensure_ascii=False)


def plan_from_json(text: str) -> Plan:
    """Read a plan back; raise ValueError for what this version cannot read."""
    try:
        data = json.loads(text)
        if not isinstance(data, dict) or data.pop("v", None) != VERSION:
            raise ValueError(f"not a plan of version {VERSION}")
        _check_values(data)
        cluster, hosts = data.pop("cluster", None), data.pop("hosts", None)
        plan = cast("Plan", from_data(Plan, data))
        plan = plan if cluster is None else plan._replace(cluster=_cluster(cluster))
        return plan if hosts is None else plan._replace(hosts=_hosts(hosts))
    except (TypeError, RecursionError) as error:
        raise ValueError(f"not a plan: {error}") from error


def _check_values(data: object) -> None:
    """Raise ValueError for what no plan holds: texts that no process can be given, numbers that no machine counts."""
    if isinstance(data, dict):
        for key, item in data.items():
            _check_values(key)
            _check_values(item)
    elif isinstance(data, list):
        for item in data:
            _check_values(item)
    elif isinstance(data, str):
        if "\0" in data:
            raise ValueError("a text with a NUL character")
        data.encode("utf-8", "surrogateescape")
    elif isinstance(data, int | float) and not abs(data) < _MOST:
        raise ValueError("a number beyond all bounds")


def to_data(value: object) -> object:
    """Turn frozen values into what JSON knows; fields at their default are left out."""
    if isinstance(value, Secret):
        return {"from": value.variable}
    if isinstance(value, ReplicaId):
        return str(value)
    if isinstance(value, Mapping):
        return {key: to_data(item) for key, item in value.items()}
    if _is_record(type(value)):
        defaults = type(value)._field_defaults  # type: ignore[attr-defined]
        items = zip(type(value)._fields, cast("tuple[object, ...]", value), strict=True)  # type: ignore[attr-defined]
        return {name: to_data(item) for name, item in items if name not in defaults or item != defaults[name]}
    if isinstance(value, tuple):
        return [to_data(item) for item in value]
    return value


def from_data(kind: Any, data: Any) -> object:
    """Build a value of this type from what `to_data` made of one; raise TypeError for anything else."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is UnionType:
        if data is None and NoneType in arguments:
            return None
        if Secret in arguments and isinstance(data, dict):
            return from_data(Secret, {"variable": data.get("from")})
        return from_data(arguments[0], data)
    if kind is ReplicaId:
        return ReplicaId.parse(_checked(str, data))
    if origin is tuple:
        return tuple(from_data(arguments[0], item) for item in _checked(list, data))
    if origin is Mapping:
        return {key: from_data(arguments[1], item) for key, item in _checked(dict, data).items()}
    if _is_record(kind):
        hints = _hints(cast("type", kind))
        unknown = _checked(dict, data).keys() - hints.keys()
        if unknown:
            raise TypeError(f"{min(unknown)} is no field of a {cast('type', kind).__name__}")
        return cast("type", kind)(**{name: from_data(hints[name], item) for name, item in data.items()})
    if kind is object:
        return data
    if kind is float and type(data) is int and abs(data) < 1 << 63:
        return float(data)
    return _checked(kind, data)


def _is_record(kind: type) -> bool:
    return hasattr(kind, "_fields")


def _checked(kind: type, data: Any) -> Any:
    if type(data) is not kind:
        raise TypeError(f"expected {kind.__name__}, got {data!r}")
    return data


def _cluster(data: Any) -> Cluster:
    from drumline.plan import cluster  # noqa: PLC0415 - only where a plan has one

    return cast("Cluster", from_data(cluster.Cluster, data))


def _hosts(data: Any) -> Hosts:
    from drumline.plan import hosts  # noqa: PLC0415 - only where a plan has them

    return cast("Hosts", from_data(hosts.Hosts, data))


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, localns={"Cluster": object, "Hosts": object})
