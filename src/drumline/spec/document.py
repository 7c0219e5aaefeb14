"""YAML, in and out: the one door to the library. Reading gives a tree that knows its lines.

The tree is built from the parser's events, not by the library's composer, so that depth and aliases are
bounded, a key that stands twice is seen, and plain words keep the text that was typed: `no`, `1e-6`, `010`
and `12:30` mean what they look like, not what YAML 1.1 made of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import yaml

from drumline.errors import Problem, SpecError

MAX_BYTES = 1_000_000
MAX_DEPTH = 40
MAX_NODES = 200_000

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INT = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?")
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
}


class Scalar(NamedTuple):
    """A single value: the text as typed, and whether it stood without quotes."""

    text: str
    plain: bool
    line: int

    @property
    def value(self) -> bool | int | float | str | None:
        """The value by YAML 1.2's core rules; whatever is ambiguous stays text."""
        if not self.plain:
            return self.text
        if self.text in _WORDS:
            return _WORDS[self.text]
        if _INT.fullmatch(self.text):
            return int(self.text)
        # `010` is eight to some and ten to others: it stays text, and whoever wants a number says so.
        if _FLOAT.fullmatch(self.text) and not re.match(r"[-+]?0[0-9]", self.text) and len(self.text) < 40:
            return float(self.text)
        return self.text


class Sequence(NamedTuple):
    """A list."""

    items: tuple[Node, ...]
    line: int


class Entry(NamedTuple):
    """A key with its value."""

    key: str
    line: int
    node: Node


class Mapping(NamedTuple):
    """Keys and values, in the order of the file; no key twice."""

    entries: tuple[Entry, ...]
    line: int


Node = Scalar | Sequence | Mapping


def parse(data: bytes, source: str) -> Node:
    """Read one YAML document; raise SpecError for whatever is not one."""
    text = _decode(data, source)
    builder = _Builder(source)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise builder.error(mark.line + 1 if mark else None, _words(error)) from None
    except yaml.YAMLError as error:
        raise builder.error(None, f"not valid YAML: {error}") from None
    if builder.root is None:
        raise SpecError([Problem(source, None, "", "is empty; `drumline init` writes one to begin with")])
    if builder.problems:
        raise SpecError(builder.problems)
    return builder.root


def dump(value: object) -> str:
    """Write plain data as YAML, keys in the order given."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
    return text


class _Dumper(yaml.SafeDumper):
    """Writes no anchors, and several lines as a block, as a person would."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _represent_text)


def _decode(data: bytes, source: str) -> str:
    def refuse(message: str, line: int | None = None) -> SpecError:
        return SpecError([Problem(source, line, "", message)])

    if len(data) > MAX_BYTES:
        raise refuse(f"is larger than {MAX_BYTES // 1000} kB; a spec is a page of text")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise refuse("is UTF-16; save it as UTF-8")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise refuse(f"is not UTF-8: byte 0x{data[error.start]:02x} does not belong there", line) from None
    for match in re.finditer(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", text):
        line = text.count("\n", 0, match.start()) + 1
        name = "NUL byte" if match[0] == "\0" else f"control character 0x{ord(match[0]):02x}"
        raise refuse(f"{name} in the text; is this a YAML file?", line)
    return text


def _words(error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or "cannot be read"
    if "'\\t'" in problem:
        return "not valid YAML: a tab where only spaces may indent; replace it by spaces"
    if "mapping values are not allowed" in problem:
        return "not valid YAML: a second `:` in one line; is a line break or a quote missing?"
    if "unexpected end" in problem or "expected <document start>" in problem:
        return "not valid YAML: this line does not belong to what stands above it"
    context = f" {error.context}" if error.context else ""
    return f"not valid YAML: {problem}{context}"


class _Open:
    """A list or mapping whose end has not come yet."""

    def __init__(self, *, line: int, anchor: str | None, mapping: bool, start: int) -> None:
        self.line = line
        self.anchor = anchor
        self.mapping = mapping
        self.start = start  # how many nodes there were before it
        self.items: list[Node] = []
        self.entries: dict[str, Entry] = {}
        self.merged: list[Entry] = []
        self.key: Scalar | None = None


class _Builder:
    """Puts the parser's events together, without recursion."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.root: Node | None = None
        self.problems: list[Problem] = []
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Node, int]] = {}
        self._nodes = 0

    def error(self, line: int | None, message: str) -> SpecError:
        return SpecError([*self.problems, Problem(self.source, line, "", message)])

    def take(self, event: yaml.Event) -> None:
        line = event.start_mark.line + 1 if event.start_mark else 0
        match event:
            case yaml.ScalarEvent():
                if event.tag not in (None, "!", "tag:yaml.org,2002:str"):
                    raise self.error(line, f"tags have no meaning here: remove `{event.tag}`")
                plain = event.style in (None, "") and event.tag is None
                self._add(Scalar(event.value, plain, line), event.anchor, added=1, size=1)
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                if event.tag not in (None, "!"):
                    raise self.error(line, f"tags have no meaning here: remove `{event.tag}`")
                if len(self._open) >= MAX_DEPTH:
                    raise self.error(line, f"nested more than {MAX_DEPTH} levels deep")
                mapping = isinstance(event, yaml.MappingStartEvent)
                self._open.append(_Open(line=line, anchor=event.anchor, mapping=mapping, start=self._nodes))
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                done = self._open.pop()
                node: Node
                if done.mapping:
                    own = tuple(done.entries.values())
                    merged = {entry.key: entry for entry in reversed(done.merged)}
                    rest = tuple(entry for key, entry in merged.items() if key not in done.entries)
                    node = Mapping(own + rest, done.line)
                else:
                    node = Sequence(tuple(done.items), done.line)
                self._add(node, done.anchor, added=1, size=self._nodes - done.start + 1)
            case yaml.AliasEvent():
                if any(parent.anchor == event.anchor for parent in self._open):
                    raise self.error(line, f"`*{event.anchor}` contains itself")
                if event.anchor not in self._anchors:
                    raise self.error(line, f"`*{event.anchor}` has no `&{event.anchor}` before it")
                node, size = self._anchors[event.anchor]
                self._add(node, None, added=size, size=size)
            case yaml.DocumentStartEvent() if self.root is not None:
                raise self.error(line, "a second document begins here; a spec is one document")
            case _:
                pass

    def _add(self, node: Node, anchor: str | None, *, added: int, size: int) -> None:
        self._nodes += added
        if self._nodes > MAX_NODES:
            raise self.error(node.line, f"more than {MAX_NODES} values, aliases counted as often as they are used")
        if anchor is not None:
            self._anchors[anchor] = (node, size)
        if not self._open:
            self.root = node
            return
        parent = self._open[-1]
        if not parent.mapping:
            parent.items.append(node)
        elif parent.key is None:
            if not isinstance(node, Scalar):
                raise self.error(node.line, "a key must be a word; a `{{ placeholder }}` inside [] or {} needs quotes")
            parent.key = node
        else:
            key, parent.key = parent.key, None
            if key.plain and key.text == "<<":
                parent.merged.extend(self._merge(node))
            elif key.text in parent.entries:
                first = parent.entries[key.text].line
                self.problems.append(
                    Problem(
                        self.source,
                        key.line,
                        "",
                        f"`{key.text}` stands here a second time; first in line {first}",
                    )
                )
            else:
                parent.entries[key.text] = Entry(key.text, key.line, node)

    def _merge(self, node: Node) -> Iterator[Entry]:
        if isinstance(node, Sequence):
            for item in node.items:
                yield from self._merge(item)
        elif isinstance(node, Mapping):
            yield from node.entries
        else:
            raise self.error(node.line, "`<<` takes a mapping")
