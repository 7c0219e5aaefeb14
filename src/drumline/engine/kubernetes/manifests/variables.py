"""The variables of a container, from those of the launches that share its template.

Kubernetes expands `$(NAME)` with earlier variables. Values use this for the replica's index, which a shared template
does not have, and for the addresses of the cluster, which are stored once. What Kubernetes cannot express is exported
by the shell before it executes the command.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from drumline.plan.rendezvous.torch import RESTART_COUNT
from drumline.plan.types import Extended, Launch, LaunchValue, Secret, Shared
from drumline.record import Record

INDEX = "DRUMLINE_INDEX"
ATTEMPT = "DRUMLINE_ATTEMPT"
RESTARTED = "DRUMLINE_RESTARTED"  # the cluster's count of restarts, where the attempt does not start at 0
COUNTED = "DRUMLINE_COUNTED"  # the cluster's index of a pod, where replicas do not start at 0


class Variables(Record):
    """The `env` of a container, in order, and what its shell exports before it executes the command."""

    entries: tuple[dict[str, Any], ...]
    exports: tuple[str, ...]
    shared: Mapping[str, str]  # long values by key, to which entries refer


class IndexSource(Record):
    """The field with the index of a pod of a shared template, and the replica of index 0."""

    field: str
    first: int = 0
    attempt_field: str | None = None  # the field with the number of restarts, if the cluster restarts


def variables(
    launches: Sequence[Launch], *, shared_in: str, secrets_in: str, index_source: IndexSource | None = None
) -> Variables:
    """Return the variables of replicas that share a template, or of one replica, which needs no index source."""
    entries: list[dict[str, Any]] = []
    exports: list[str] = []
    shared: dict[str, str] = {}
    first = launches[0]
    numbered = set()
    if index_source:
        _count(INDEX, COUNTED, index_source.field, index_source.first, entries, exports)
        numbered.add(INDEX)
    if index_source and index_source.attempt_field:
        _count(ATTEMPT, RESTARTED, index_source.attempt_field, first.attempt, entries, exports)
        numbered.add(ATTEMPT)
    for value in first.env.values():
        if isinstance(value, Shared) and value.name not in shared:
            shared[value.name] = value.text
            source = {"configMapKeyRef": {"name": shared_in, "key": value.name}}
            entries.append({"name": value.name, "valueFrom": source})
    for name, value in first.env.items():
        if name in numbered:
            continue
        if isinstance(value, Secret):
            source = {"secretKeyRef": {"name": secrets_in, "key": value.variable}}
            entries.append({"name": name, "valueFrom": source})
        elif name == RESTART_COUNT and ATTEMPT in numbered:
            if first.attempt:
                exports.append(f"{name}=${ATTEMPT}")
            else:
                entries.append({"name": name, "value": f"$({ATTEMPT})"})
        elif isinstance(value, Extended):
            exports.append(f'{name}={shlex.quote(value.text)}"{value.rest}"')
        elif index_source is None or all(launch.env.get(name) == value for launch in launches):
            entries.append({"name": name, "value": _text(value)})
        else:
            number = _find_number(name, launches)
            if number.offset == 0 and index_source.first == 0:
                entries.append({"name": name, "value": number.for_kubernetes()})
            else:
                exports.append(f"{name}={number.for_shell()}")
    return Variables(tuple(entries), tuple(exports), shared)


def escape(text: str, *, continues: bool = False) -> str:
    """Return text that Kubernetes does not expand; `continues`: an expanded variable follows."""
    return re.sub(r"\$(?=[$(]|\Z)" if continues else r"\$(?=[$(])", "$$", text)


def _count(name: str, counted: str, field: str, first: int, entries: list[dict[str, Any]], exports: list[str]) -> None:
    """Add a variable for a number that the cluster writes to a field; the shell adds `first`, if that is not 0."""
    entries.append(_from_field(counted if first else name, field))
    if first:
        exports.append(f"{name}=$(({counted} + {first}))")


def _from_field(name: str, field: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": field}}}


def _text(value: LaunchValue) -> str:
    if isinstance(value, Shared):
        return f"{escape(value.before, continues=True)}$({value.name}){escape(value.after)}"
    return escape(str(value))


class _Numbered(Record):
    """A value that differs between replicas only by one number: the index plus an offset."""

    before: str
    cluster: str | None  # a variable between `before` and `middle`
    middle: str
    offset: int
    after: str

    def for_kubernetes(self) -> str:
        """Return the value with the index for Kubernetes to expand."""
        between = "" if self.cluster is None else f"$({self.cluster})"
        head = escape(self.before, continues=True) + between + escape(self.middle, continues=True)
        return f"{head}$({INDEX}){escape(self.after)}"

    def for_shell(self) -> str:
        """Return the value with the index for a shell to compute."""
        between = "" if self.cluster is None else f'"${self.cluster}"'
        head = _quote(self.before) + between + _quote(self.middle)
        return f"{head}$(({INDEX} + {self.offset})){_quote(self.after)}"


def _quote(text: str) -> str:
    return shlex.quote(text) if text else ""


def _find_number(name: str, launches: Sequence[Launch]) -> _Numbered:
    """Return the number by which the values of replicas differ."""
    values = [(launch.replica.id.index, launch.env.get(name)) for launch in launches]
    first = values[0][1]
    ends = [(index, value.after if isinstance(value, Shared) else str(value)) for index, value in values]
    for before, offset, after in _candidates(*ends[0]):
        if all(text == f"{before}{index + offset}{after}" for index, text in ends):
            if isinstance(first, Shared):
                return _Numbered(first.before, first.name, before, offset, after)
            return _Numbered("", None, before, offset, after)
    raise AssertionError(f"{name} differs between replicas that share a template")


def _candidates(index: int, text: str) -> Iterator[tuple[str, int, str]]:
    for match in re.finditer(r"[0-9]{1,9}", text):
        yield text[: match.start()], int(match[0]) - index, text[match.end() :]
