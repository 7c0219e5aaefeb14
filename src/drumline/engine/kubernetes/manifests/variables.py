"""A container's variables, out of those of the launches that it stands for.

Kubernetes fills `$(NAME)` in with variables that stand before; that is how a value takes up the replica's number, which
only the pod knows where many share a template, and the cluster's addresses, which stand once for all of them.
What Kubernetes cannot say, a line of shell does, before it becomes the command.
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
RESTARTED = "DRUMLINE_RESTARTED"  # the cluster's own count of an attempt, where attempts begin elsewhere
COUNTED = "DRUMLINE_COUNTED"  # the cluster's own count of a template's pods, where replicas begin elsewhere


class Variables(Record):
    """What a container is given, in this order; and what a shell exports before it becomes the command."""

    entries: tuple[dict[str, Any], ...]
    exports: tuple[str, ...]
    shared: Mapping[str, str]  # long values, by key, to which entries refer


class IndexSource(Record):
    """Where a pod of a shared template finds its number, and which replica has number 0."""

    field: str
    first: int = 0
    attempt_field: str | None = None  # where it finds how often the line has started again, if not drumline counts that


def variables(
    launches: Sequence[Launch], *, shared_in: str, secrets_in: str, index_source: IndexSource | None = None
) -> Variables:
    """Write down the variables of replicas that share a template; or of one replica, which needs no counting."""
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


def escape(text: str, *, goes_on: bool = False) -> str:
    """Text that Kubernetes passes on as it is; also where more follows that it is to fill in."""
    return re.sub(r"\$(?=[$(]|\Z)" if goes_on else r"\$(?=[$(])", "$$", text)


def _count(name: str, counted: str, field: str, first: int, entries: list[dict[str, Any]], exports: list[str]) -> None:
    """Take a number from where the cluster writes it; a shell adds what it begins with, if that is not 0."""
    entries.append(_from_field(counted if first else name, field))
    if first:
        exports.append(f"{name}=$(({counted} + {first}))")


def _from_field(name: str, field: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": field}}}


def _text(value: LaunchValue) -> str:
    if isinstance(value, Shared):
        return f"{escape(value.before, goes_on=True)}$({value.name}){escape(value.after)}"
    return escape(str(value))


class _Numbered(Record):
    """A value that is the same for every replica but for one number: its index and a little more."""

    before: str
    cluster: str | None  # a variable that stands between
    middle: str
    offset: int
    after: str

    def for_kubernetes(self) -> str:
        """The value in which Kubernetes fills the index in."""
        between = "" if self.cluster is None else f"$({self.cluster})"
        head = escape(self.before, goes_on=True) + between + escape(self.middle, goes_on=True)
        return f"{head}$({INDEX}){escape(self.after)}"

    def for_shell(self) -> str:
        """The value as a shell works it out."""
        between = "" if self.cluster is None else f'"${self.cluster}"'
        head = _quote(self.before) + between + _quote(self.middle)
        return f"{head}$(({INDEX} + {self.offset})){_quote(self.after)}"


def _quote(text: str) -> str:
    return shlex.quote(text) if text else ""


def _find_number(name: str, launches: Sequence[Launch]) -> _Numbered:
    """Find the number by which the values of replicas differ."""
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
