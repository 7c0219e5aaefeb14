"""Parse YAML into a tree with line numbers.

The tree is built from the parser's events, not by the library's composer, so that depth and aliases are limited,
duplicate keys are found, and unquoted words keep their text: `no`, `1e-6`, `010` and `12:30` are not converted as in
YAML 1.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import yaml

from drumline.errors import Problem, SpecError
from drumline.record import Record
from drumline.spec.syntax import ESCAPE, Position, explain_syntax
from drumline.words import printable

MAX_BYTES = 1_000_000
MAX_DEPTH = 40
MAX_NODES = 200_000

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INT = re.compile(r"[-+]?(0|[1-9][0-9]{0,38})")
_FLOAT = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ufffe\uffff]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
}

Path = tuple[str | int, ...]


class Scalar(Record):
    """A single value: its text as in the file, and whether it had no quotes (`plain`)."""

    text: str
    plain: bool
    line: int

    @property
    def value(self) -> bool | int | float | str | None:
        """Return the value by the core rules of YAML 1.2; an ambiguous one stays text."""
        if not self.plain:
            return self.text
        if self.text in _WORDS:
            return _WORDS[self.text]
        if _INT.fullmatch(self.text):
            return int(self.text)
        # `010` is 8 in YAML 1.1 and 10 in YAML 1.2: it stays text, and where a number is expected it is reported.
        if _FLOAT.fullmatch(self.text) and not re.match(r"[-+]?0[0-9]", self.text) and len(self.text) < 40:
            return float(self.text)
        return self.text


class Sequence(Record):
    """A list."""

    items: tuple[Node, ...]
    line: int


class Entry(Record):
    """A key with its value."""

    key: str
    line: int
    node: Node


class Mapping(Record):
    """Keys and values in the order of the file; keys are unique."""

    entries: tuple[Entry, ...]
    line: int


Node = Scalar | Sequence | Mapping


class DuplicateKey(Record):
    """A second occurrence of a key; only the first is in the tree."""

    path: Path
    line: int
    first_line: int


class Document(Record):
    """A parsed YAML document."""

    root: Node
    duplicates: tuple[DuplicateKey, ...]


def parse(data: bytes, source: str) -> Document:
    """Parse one YAML document; raise SpecError if the data are not one valid document, or are too large."""
    builder = _build(data, source, several=False)
    if builder.root is None or is_null(builder.root):
        raise SpecError([Problem(source, None, "", "is empty; `drumline init` writes a spec to start from")])
    return Document(builder.root, tuple(builder.duplicates))


def parse_several(data: bytes, source: str) -> tuple[Document, ...]:
    """Parse a file of YAML documents, without empty ones; raise SpecError as `parse` does."""
    builder = _build(data, source, several=True)
    builder.start_document()
    return tuple(each for each in builder.documents if not is_null(each.root))


def _build(data: bytes, source: str, *, several: bool) -> _Builder:
    text = decode(data, source)
    builder = _Builder(source, several=several)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            builder.handle(event)
    except yaml.MarkedYAMLError as error:
        trouble = " ".join(filter(None, (error.problem, error.context)))
        noticed, began = _position(error.problem_mark), _position(error.context_mark)
        raise builder.error(
            *explain_syntax(trouble, noticed=noticed or Position(0, 0), began=began, text=text)
        ) from None
    except (yaml.YAMLError, ValueError) as error:  # the loader without libyaml raises ValueError
        raise builder.error(None, f"not valid YAML: {error}") from None
    return builder


def is_null(node: Node) -> bool:
    """Return whether a node is null: `null`, `~` or empty."""
    return isinstance(node, Scalar) and node.value is None


def _position(mark: yaml.Mark | None) -> Position | None:
    return Position(mark.line, mark.column) if mark else None


def decode(data: bytes, source: str) -> str:
    """Return the text of a file; raise SpecError if it is not UTF-8 text, or too large."""

    def refuse(message: str, line: int | None = None) -> SpecError:
        return SpecError([Problem(source, line, "", message)])

    if len(data) > MAX_BYTES:
        raise refuse(f"is larger than {MAX_BYTES // 1_000_000} MB, the limit for a spec")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise refuse("is UTF-16; save it as UTF-8")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        byte = data[error.start]
        raise refuse(f"is not UTF-8: byte 0x{byte:02x} does not belong there; save it as UTF-8", line) from None
    if control := _CONTROL.search(text):
        line = text.count("\n", 0, control.start()) + 1
        name = "NUL byte" if control[0] == "\0" else f"control character 0x{ord(control[0]):02x}"
        raise refuse(f"{name} in the text; is this a YAML file?", line)
    # The library takes quadratic time for tag directives.
    if directive := re.search(r"^%TAG\b", text, re.MULTILINE):
        raise refuse("tags are not supported: remove `%TAG`", text.count("\n", 0, directive.start()) + 1)
    return text


class _OpenNode:
    """A list or mapping of which the parser has not reached the end."""

    def __init__(self, *, line: int, anchor: str | None, mapping: bool, start: int) -> None:
        self.line = line
        self.anchor = anchor
        self.mapping = mapping
        self.start = start  # the number of nodes before this one
        self.items: list[Node] = []
        self.entries: dict[str, Entry] = {}
        self.merged: list[Entry] = []
        self.key: Scalar | None = None


class _Builder:
    """Builds the tree from the parser's events, without recursion."""

    def __init__(self, source: str, *, several: bool) -> None:
        self.source = source
        self.documents: list[Document] = []
        self._several = several
        self.root: Node | None = None
        self.duplicates: list[DuplicateKey] = []
        self._open: list[_OpenNode] = []
        self._anchors: dict[str, tuple[Node, int]] = {}
        self._nodes = 0

    def error(self, line: int | None, message: str) -> SpecError:
        return SpecError([Problem(self.source, line, "", printable(message))])

    def start_document(self) -> None:
        """Store the current document, if there is one, and start the next."""
        if self.root is not None:
            self.documents.append(Document(self.root, tuple(self.duplicates)))
        self.root, self.duplicates = None, []
        self._anchors = {}

    def handle(self, event: yaml.Event) -> None:
        line = event.start_mark.line + 1 if event.start_mark else 0
        match event:
            case yaml.ScalarEvent():
                self._refuse_tag(event.tag, line, "!", "tag:yaml.org,2002:str")
                if _SURROGATE.search(event.value):
                    raise self.error(line, f"not valid YAML: {ESCAPE}")
                plain = event.style in (None, "") and event.tag is None
                self._add(Scalar(event.value, plain, line), line, event.anchor, added=1, size=1)
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                self._refuse_tag(event.tag, line, "!")
                if len(self._open) >= MAX_DEPTH:
                    raise self.error(line, f"nested more than {MAX_DEPTH} levels deep")
                mapping = isinstance(event, yaml.MappingStartEvent)
                self._open.append(_OpenNode(line=line, anchor=event.anchor, mapping=mapping, start=self._nodes))
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
                self._add(node, done.line, done.anchor, added=1, size=self._nodes - done.start + 1)
            case yaml.AliasEvent():
                if any(parent.anchor == event.anchor for parent in self._open):
                    raise self.error(line, f"`*{event.anchor}` contains itself")
                if event.anchor not in self._anchors:
                    missing = f"`*{event.anchor}` has no `&{event.anchor}` before it"
                    raise self.error(line, f"{missing}; a text that begins with `*` needs quotes")
                node, size = self._anchors[event.anchor]
                self._add(node, line, None, added=size, size=size)
            case yaml.DocumentStartEvent() if self._several:
                self.start_document()
            case yaml.DocumentStartEvent() if self.root is not None:
                raise self.error(line, "a second document begins here; a spec is one document")
            case _:
                pass

    def _add(self, node: Node, line: int, anchor: str | None, *, added: int, size: int) -> None:
        self._nodes += added
        if self._nodes > MAX_NODES:
            raise self.error(line, f"more than {MAX_NODES} values, aliases counted as often as they are used")
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
                raise self.error(
                    line,
                    "a key must be a word; a text with `{{ … }}` at its beginning, or inside [] or {}, needs quotes",
                )
            parent.key = node
        else:
            key = parent.key
            if key.plain and key.text == "<<":
                parent.merged.extend(self._merge(node))
            elif key.text in parent.entries:
                self.duplicates.append(DuplicateKey(self._path(), key.line, parent.entries[key.text].line))
            else:
                parent.entries[key.text] = Entry(key.text, key.line, node)
            parent.key = None

    def _path(self) -> Path:
        """Return the path of the current node."""
        return tuple(parent.key.text if parent.key else len(parent.items) for parent in self._open)

    def _refuse_tag(self, tag: str | None, line: int, *harmless: str) -> None:
        if tag is not None and tag not in harmless:
            typed = tag.replace("tag:yaml.org,2002:", "!!", 1)
            raise self.error(line, f"tags are not supported: remove `{typed}`")

    def _merge(self, node: Node) -> Iterator[Entry]:
        """Yield the entries of a mapping, or of each mapping in a list, that `<<` merges."""
        if isinstance(node, Sequence):
            for item in node.items:
                yield from self._merge(item)
        elif isinstance(node, Mapping):
            yield from node.entries
        else:
            raise self.error(node.line, "`<<` needs a mapping")
