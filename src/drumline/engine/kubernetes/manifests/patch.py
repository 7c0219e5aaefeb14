"""A merge patch (RFC 7386) that merges containers, volumes and similar lists by name.

RFC 7386 replaces lists as a whole. Here those lists of a pod in which each item has a key are merged by that key, as
Kubernetes does; all other lists are replaced.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drumline.engine.kubernetes.paths import Object

# The lists of a pod with the keys of their items.
_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "volumeMounts": "mountPath",
}


def merge(target: Object, patch: Mapping[str, Any], aliases: Mapping[str, str]) -> Object:
    """Return the patched target; null removes a key. `aliases` map container names of the patch to the target's."""
    merged = dict(target)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            own = merged.get(key)
            merged[key] = merge(own if isinstance(own, dict) else {}, value, aliases)
        elif key in _KEYS and isinstance(value, list):
            own = merged.get(key)
            merged[key] = _merge_list(own if isinstance(own, list) else [], value, _KEYS[key], aliases)
        else:
            merged[key] = value
    return merged


def _merge_list(target: list[Any], patch: list[Any], key: str, aliases: Mapping[str, str]) -> list[Any]:
    merged = list(target)
    for item in patch:
        name = item.get(key) if isinstance(item, Mapping) else None
        name = aliases.get(name, name) if isinstance(name, str) else None
        where = next((index for index, each in enumerate(merged) if name and each.get(key) == name), None)
        if where is None:
            merged.append(merge({}, item, aliases) if isinstance(item, Mapping) else item)
        else:
            merged[where] = {**merge(merged[where], item, aliases), key: name}
    return merged
