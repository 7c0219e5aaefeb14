"""The API's path of a kind or an object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

Object = dict[str, Any]
Objects = list[Object]

# The API versions that drumline uses; kinds of the core group need no entry.
VERSIONS: Mapping[str, str] = {
    "Job": "batch/v1",
    "NetworkPolicy": "networking.k8s.io/v1",
    "StorageClass": "storage.k8s.io/v1",
    "JobSet": "jobset.x-k8s.io/v1alpha2",
    "TFJob": "kubeflow.org/v1",
    "SelfSubjectAccessReview": "authorization.k8s.io/v1",
    "PodMetrics": "metrics.k8s.io/v1beta1",
}
_GLOBAL = frozenset(("Namespace", "Node", "StorageClass", "SelfSubjectAccessReview"))


def plural(kind: str) -> str:
    """Return the plural of a kind as in API paths."""
    word = kind.lower()
    if kind == "PodMetrics":
        return "pods"
    if word.endswith("y"):
        return f"{word[:-1]}ies"
    return f"{word}es" if word.endswith("s") else f"{word}s"


def path_of(kind: str, namespace: str, *, name: str = "", version: str = "") -> str:
    """Return the path of a kind in a namespace, for "" in all namespaces; with a name, the path of that object."""
    version = version or VERSIONS.get(kind, "v1")
    base = f"/apis/{version}" if "/" in version else f"/api/{version}"
    place = "" if kind in _GLOBAL or not namespace else f"/namespaces/{quote(namespace, safe='')}"
    return f"{base}{place}/{plural(kind)}" + (f"/{quote(name, safe='')}" if name else "")


def new_object(kind: str, metadata: Object, **content: Any) -> Object:
    """Return an object of a kind with its API version."""
    return {"apiVersion": VERSIONS.get(kind, "v1"), "kind": kind, "metadata": metadata, **content}


def name_of(an_object: Mapping[str, Any]) -> str:
    """Return the name of an object."""
    return str(an_object["metadata"]["name"])
