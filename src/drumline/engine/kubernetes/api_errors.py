"""Errors of an API server, with hints."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from drumline.engine.kubernetes.answer_fields import mapping, mappings, text
from drumline.errors import EngineError
from drumline.record import Record

_QUOTA = "exceeded quota"
# `pods is forbidden: User "ann" cannot list resource "pods" in API group "" in the namespace "team": …`
_FORBIDDEN = re.compile(r'User "(?P<user>[^"]*)" cannot (?P<verb>\w+) resource "(?P<resource>[^"]*)"')


class RefusedError(EngineError):
    """The API server refuses a request; a retry does not help."""

    def __init__(self, message: str, *, hint: str = "", status: int = 0, reason: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.reason = reason


class UnreachableError(EngineError):
    """The API server does not answer, or asks to retry later, after `after_seconds` if set."""

    def __init__(self, message: str, after_seconds: float | None = None, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.after_seconds = after_seconds


class TooLargeError(EngineError):
    """An answer is larger than the limit."""


class ApiLocation(Record):
    """The context of the kubeconfig, its server, and the namespace."""

    context: str
    server: str
    namespace: str
    is_chosen: bool = False  # the context was chosen by name; else it is `kubectl`'s default

    @property
    def kubectl(self) -> str:
        """The `kubectl` command for the same cluster."""
        return f"kubectl --context {self.context}" if self.is_chosen else "kubectl"


def refusal(status: int, answer: Mapping[str, Any], where: ApiLocation, what: str) -> RefusedError:
    """Return the error for a refused request; `answer` is the server's `Status` object, empty if it sent none."""
    reported = text(answer.get("message")) or f"HTTP {status}"
    reason = text(answer.get("reason"))
    kind = mapping(answer.get("details")).get("kind")
    if status == 401:
        message = f"the cluster at {where.server} does not accept the credentials of the context `{where.context}`"
        return RefusedError(
            message, hint=f"log in again, and check with `{where.kubectl} auth whoami`", status=401, reason=reason
        )
    if status == 403 and _QUOTA in reported:
        hint = f"`{where.kubectl} describe quota -n {where.namespace}` shows it"
        return RefusedError(
            f"the quota of the namespace `{where.namespace}` is used up: {reported}", hint=hint, status=403
        )
    if status == 403:
        return _forbidden(reported, where)
    if status == 404 and kind == "namespaces":
        return namespace_error(where)
    if status == 404 and not kind:
        message = f"the cluster at {where.server} does not support the request ({what})"
        hint = f"`{where.kubectl} api-resources` lists the supported kinds; an operator may be missing"
        return RefusedError(message, hint=hint, status=404, reason=reason)
    return RefusedError(f"the cluster refused to {what}: {reported}", status=status, reason=reason)


def is_from_node(status: int, answer: Mapping[str, Any]) -> bool:
    """Return whether a 404 is from a node, not from the server: then the pod or the kubelet has just started."""
    causes = mappings(mapping(answer.get("details")).get("causes"))
    return status == 404 and any(each.get("reason") == "UnexpectedServerResponse" for each in causes)


def namespace_error(where: ApiLocation) -> RefusedError:
    """Return the error for a namespace that does not exist."""
    message = f"there is no namespace `{where.namespace}` in the cluster at {where.server}"
    hint = f"`{where.kubectl} create namespace {where.namespace}` makes it"
    return RefusedError(message, hint=hint, status=404, reason="NotFound")


def _forbidden(reported: str, where: ApiLocation) -> RefusedError:
    if found := _FORBIDDEN.search(reported):
        user, verb, resource = found["user"], found["verb"], found["resource"]
        message = f"`{user}` may not {verb} {resource} in the namespace `{where.namespace}`"
        hint = (
            f"ask for a role that allows it; check with"
            f" `{where.kubectl} auth can-i {verb} {resource} -n {where.namespace}`"
        )
        return RefusedError(message, hint=hint, status=403, reason="Forbidden")
    return RefusedError(f"the cluster forbids it: {reported}", status=403, reason="Forbidden")
