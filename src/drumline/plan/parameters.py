"""`{{ name }}`: found, and filled in so that a value always arrives unchanged.

Inside a shell command a value is quoted for the place where it stands: bare, in single or in double quotes.
Where no quoting is safe (back-quotes, here-documents, `$'…'`, defaults inside quoted `${…}`) it is refused.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

_PLACEHOLDER = re.compile(r"\{\{\s*([A-Za-z]([A-Za-z0-9_-]*[A-Za-z0-9])?)\s*\}\}")
_ALIKE = re.compile(r"\{\{[^{}]*\}\}")
_HEREDOC = re.compile(r"<<-?\s*[\"'\\]?\w")
_SAFE = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")

_REFUSED = {"`": "back-quotes; use $(…)", "<<": "a here-document", "$'": "$'…'", '"${': "a quoted ${…}"}


class Placeholder(NamedTuple):
    """`{{ name }}` in a command, and the kind of quotes around it."""

    name: str
    context: str

    @property
    def trouble(self) -> str | None:
        """Where it stands, if no value could be put there safely."""
        return _REFUSED.get(self.context)


def placeholders(text: str) -> Iterator[str]:
    """The names of all placeholders in a plain text."""
    return (match[1] for match in _PLACEHOLDER.finditer(text))


def lookalikes(text: str) -> Iterator[str]:
    """What stands in double braces and is no placeholder; it is passed on as it is."""
    return (match[0] for match in _ALIKE.finditer(text) if not _PLACEHOLDER.fullmatch(match[0]))


def fill(text: str, values: Mapping[str, str]) -> str:
    """Put values into a text that no shell will read."""
    return _PLACEHOLDER.sub(lambda match: values[match[1]], text)


def shell_placeholders(command: str) -> Iterator[Placeholder]:
    """All placeholders of a shell command, with their quotes; none for those in comments."""
    return (piece for piece in _pieces(command) if isinstance(piece, Placeholder))


def fill_shell(command: str, values: Mapping[str, str]) -> str:
    """Put values into a shell command, each as one unchanged word or part of a word."""
    return "".join(
        piece if isinstance(piece, str) else _quote(values[piece.name], piece.context) for piece in _pieces(command)
    )


def variable_name(parameter: str) -> str:
    """The variable that carries a parameter: `lr-decay` is given as LR_DECAY."""
    return parameter.upper().replace("-", "_")


def _quote(value: str, context: str) -> str:
    if _SAFE.fullmatch(value):
        return value
    around = context if context in ("'", '"') else ""
    return f"{around}{shlex.quote(value)}{around}"


def _pieces(command: str) -> Iterator[str | Placeholder]:
    """Cut a shell command at its placeholders, following the shell's quotes."""
    scanner = _Scanner(command)
    while scanner.at < len(command):
        match = _PLACEHOLDER.match(command, scanner.at)
        if match and scanner.context != "#":
            yield Placeholder(match[1], scanner.surrounding)
            scanner.at = match.end()
        else:
            yield scanner.step()


class _Scanner:
    """Walks over a shell command and knows what it stands in."""

    def __init__(self, command: str) -> None:
        self.command = command
        self.at = 0
        self._stack: list[str] = []
        self._heredoc = False

    @property
    def context(self) -> str:
        """The innermost quotes: one of `'`, `"`, `#`, `(`, `${`, or one of the refused ones, or nothing."""
        return self._stack[-1] if self._stack else ""

    @property
    def surrounding(self) -> str:
        """The outermost thing in which nothing can be quoted, else the innermost quotes."""
        return next((opened for opened in self._stack if opened in _REFUSED), self.context)

    def step(self) -> str:
        """Take the next character, or the few that belong together."""
        start = self.at
        self.at += 1
        self._step(self.command[start])
        return self.command[start : self.at]

    def _step(self, char: str) -> None:
        handle: Callable[[str], None] = {
            "'": self._in_single,
            "$'": self._in_ansi,
            '"': self._in_double,
            "#": self._in_comment,
            "<<": lambda _: None,
        }.get(self.context, self._in_code)
        handle(char)

    def _in_single(self, char: str) -> None:
        if char == "'":
            self._stack.pop()

    def _in_ansi(self, char: str) -> None:
        if char == "\\":
            self.at += 1
        elif char == "'":
            self._stack.pop()

    def _in_comment(self, char: str) -> None:
        if char == "\n":
            self._stack.pop()
            self._in_code(char)

    def _in_double(self, char: str) -> None:
        if char == "\\":
            self.at += 1
        elif char == '"':
            self._stack.pop()
        else:
            self._open(char, brace='"${')

    def _in_code(self, char: str) -> None:
        before = self.command[self.at - 2] if self.at > 1 else " "
        if char == "\\":
            self.at += 1
        elif char in "'\"":
            self._stack.append(char)
        elif char == "$" and self.command[self.at : self.at + 1] == "'":
            self.at += 1
            self._stack.append("$'")
        elif char == "#" and before in " \t\n;&|(":
            self._stack.append("#")
        elif char == "<" and _HEREDOC.match(self.command, self.at - 1):
            self._heredoc = True
            self.at += 1
        elif char == "\n" and self._heredoc:
            self._stack.append("<<")
        elif (char, self.context) in ((")", "("), ("}", "${"), ("}", '"${')):
            self._stack.pop()
        elif char == "(":
            self._stack.append("(")
        else:
            self._open(char, brace="${")

    def _open(self, char: str, *, brace: str) -> None:
        following = self.command[self.at : self.at + 1]
        if char == "`":
            if "`" in self._stack:
                del self._stack[self._stack.index("`") :]
            else:
                self._stack.append("`")
        elif char == "$" and following in ("(", "{"):
            self.at += 1
            self._stack.append("(" if following == "(" else brace)
