"""Find placeholders, `{{ name }}`, and replace them by values, so that a program gets each value unchanged.

In a shell command, a value is quoted as its place needs: without quotes around it, in single or in double quotes.
A placeholder is refused where no quoting is safe: in back-quotes, here-documents, arithmetic, `$'…'`, quoted `${…}`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from drumline.record import Record

_PLACEHOLDER = re.compile(r"\{\{\s*([A-Za-z]([A-Za-z0-9_-]*[A-Za-z0-9])?)\s*\}\}")
_ALIKE = re.compile(r"\{\{[^{}]*\}\}|\{%-?\s*+(?:if|elif|else|endif|for|endfor|set|macro|endmacro)\b[^{}%]*+(?:%\})?")
# `{{ name` with one brace after it, or with none before the next placeholder. Brace expansions and programs in other
# languages have double braces as well: `{{a,b},c}`, `awk '{{print $1} …}'`.
_UNCLOSED = re.compile(
    r"\{\{\s*+[A-Za-z][A-Za-z0-9_-]*+(?![,.])(?=\s*+\}(?!\})|(?:[^{}$]|\$(?:\{[^{}]*\})?)*+(?:\{\{|\Z))"
)
_NUMBER = r"-?[0-9]+(\.[0-9]+)?(e-?[0-9]+)?"
# Adjacent text could change the meaning of a number: `$x2`, `~2`, `2>file`.
_STICKY_BEFORE = r"[\w$~]"
_STICKY_AFTER = r"[\w<>]"

# Characters that never need quotes.
_WORD = re.compile(r"[\w./,:=@%+-]+")
_MAX_DEPTH = 50

_AMBIGUOUS = "tangled"
_REFUSED = {
    "`": "back-quotes; use $(…)",
    "<<": "a here-document",
    "$((": "$((…))",
    "$'": "$'…'",
    '"${': "a quoted ${…}",
    "${{": "${{…}}; leave out the `$`",
    _AMBIGUOUS: "a command that is too complex to analyze",
}
# The end of each kind of quotes and brackets. Shells differ on which `}` ends a `${`.
_CLOSING = {"'": "'", '"': '"', "`": "`", "$'": "'", "(": ")", "$(": ")", "$((": "))", "${": "}", '"${': "}"}
_FOREIGN = re.compile(rf"\$(?!{_PLACEHOLDER.pattern})\{{\{{[^{{}}]*\}}\}}")
_OPERATOR_AT_END = re.compile(r"(?<![\\&|])(?:&&|\|\|?)[ \t\n]*+\Z")


class Placeholder(Record):
    """`{{ name }}` in a shell command."""

    name: str
    context: str  # the quotes or brackets around it
    touched: bool  # adjacent text could change the meaning of a number

    @property
    def problem(self) -> str | None:
        """Return the name of the construct around it, if no value can be inserted there safely; else None."""
        return _REFUSED.get(self.context)


def placeholders(text: str) -> Iterator[str]:
    """Yield the names of all placeholders in a plain text."""
    return (match[1] for match in _PLACEHOLDER.finditer(text))


def lookalikes(text: str) -> Iterator[str]:
    """Yield texts in double braces that are not placeholders, and Jinja statements; they are not replaced."""
    return (match[0] for match in _ALIKE.finditer(text) if not _PLACEHOLDER.fullmatch(match[0]))


def unclosed_placeholders(text: str) -> Iterator[str]:
    """Yield every `{{ name` in a plain text that no `}}` closes."""
    return (match[0] for match in _UNCLOSED.finditer(text))


def unfinished(command: str) -> Iterator[str]:
    """Yield a message for each unclosed `{{`, quote or bracket of a shell command, and for an operator at its end.

    Comments are ignored.
    """
    scanner = _Scanner(command)
    while scanner.at < len(command):
        match = _PLACEHOLDER.match(command, scanner.at)
        if scanner.context == "#":
            match = None
        elif unclosed := _UNCLOSED.match(command, scanner.at):
            yield describe_unclosed(unclosed[0])
        elif scanner.expands and (foreign := _FOREIGN.match(command, scanner.at)):
            yield f"`{foreign[0]}` is no placeholder, and no shell can read it: write `{{{{ name }}}}` for a parameter"
        if match:
            scanner.skip(match.end())
        else:
            scanner.step()
    if found := scanner.still_open:
        opened, at = found
        yield (
            f"`{'${' if '{' in opened else opened}`{_line_of(command, at)} is never closed, so a shell cannot read the"
            f" command: close it with `{_CLOSING[opened]}`, or escape it with a backslash"
        )
    elif scanner.is_plain and (operator := _OPERATOR_AT_END.search(command)):
        yield f"nothing follows the `{operator[0].strip()}` at its end, so a shell cannot read the command"


def _line_of(command: str, at: int) -> str:
    """Return ` in line 3 of the command` for the character at this offset; empty if the command has one line."""
    return f" in line {command.count(chr(10), 0, at) + 1} of the command" if "\n" in command.strip() else ""


def describe_unclosed(text: str) -> str:
    """Return the message for `{{ name` without `}}`."""
    return f"`{text}` is never closed: write `{{{{ {text[2:].strip()} }}}}`"


def fill(text: str, values: Mapping[str, str]) -> str:
    """Return a text with values in place of its placeholders, without quoting."""
    return _PLACEHOLDER.sub(lambda match: values[match[1]], text)


def shell_placeholders(command: str) -> Iterator[Placeholder]:
    """Yield the placeholders of a shell command, except those in comments."""
    return (piece for piece in _pieces(command) if isinstance(piece, Placeholder))


def fill_shell(command: str, values: Mapping[str, str]) -> str:
    """Return a shell command with values in place of its placeholders; the shell does not split or change a value."""
    return "".join(piece if isinstance(piece, str) else _quote(values[piece.name], piece) for piece in _pieces(command))


def _quote(value: str, place: Placeholder) -> str:
    # All words are quoted, since `if`, `a=b` and `done` without quotes may have a meaning for the shell.
    if re.fullmatch(_NUMBER, value) and not place.touched:
        return value
    around = place.context if place.context in ("'", '"') else ""
    quoted = value.replace("'", "'\"'\"'")
    return f"{around}'{quoted}'{around}"


def _pieces(command: str) -> Iterator[str | Placeholder]:
    """Yield the parts of a shell command and its placeholders, following the shell's quotes."""
    if not _PLACEHOLDER.search(command):
        yield command
        return
    scanner = _Scanner(command)
    while scanner.at < len(command):
        match = _PLACEHOLDER.match(command, scanner.at)
        if match and scanner.context != "#":
            before, after = command[scanner.at - 1 : scanner.at], command[match.end() : match.end() + 1]
            touched = bool(re.match(_STICKY_BEFORE, before) or re.match(_STICKY_AFTER, after))
            yield Placeholder(match[1], scanner.surrounding, touched)
            scanner.skip(match.end())
        else:
            yield scanner.step()


class _Scanner:
    """Scans a shell command and tracks quotes and brackets.

    If shells differ, or only a full parser could decide, the rest of the command counts as ambiguous.
    """

    def __init__(self, command: str) -> None:
        self.command = command
        self.at = 0
        self._stack: list[str] = []
        self._opened_at: list[int] = []  # by depth; may be longer than the stack
        self._heredoc = False
        self._fresh = True  # whether a new word could begin here
        self._handlers: Mapping[str, Callable[[str], None]] = {
            "'": self._in_single,
            "$'": self._in_ansi,
            '"': self._in_double,
            "`": self._in_backquotes,
            "#": self._in_comment,
            "${": self._in_braces,
            '"${': self._in_quoted_braces,
            "$((": self._in_arithmetic,
            "<<": lambda _: None,
            _AMBIGUOUS: lambda _: None,
        }

    @property
    def context(self) -> str:
        """Return the innermost open quotes or brackets; empty if there are none."""
        return self._stack[-1] if self._stack else ""

    @property
    def surrounding(self) -> str:
        """Return the outermost construct in which quoting is not possible, else the innermost quotes."""
        if self.context == _AMBIGUOUS:
            return _AMBIGUOUS
        return next((opened for opened in self._stack if opened in _REFUSED), self.context)

    @property
    def still_open(self) -> tuple[str, int] | None:
        """Return the innermost unclosed quotes or brackets, and their offset; None if there are none for certain."""
        opened = [(each, self._opened_at[depth]) for depth, each in enumerate(self._stack) if each != "#"]
        if not opened or not all(each in _CLOSING for each, _ in opened):
            return None
        is_ended_by_some = any("{" in each and "}" in self.command[at:] for each, at in opened)
        return None if is_ended_by_some else opened[-1]

    @property
    def is_plain(self) -> bool:
        """Return whether the current position is certainly outside of quotes, brackets and here-documents."""
        return not self._stack and not self._heredoc

    @property
    def expands(self) -> bool:
        """Return whether a shell replaces `${…}` at the current position."""
        return all(each in ('"', "(", "$(") for each in self._stack)

    def step(self) -> str:
        """Scan and return the next word or character."""
        start = self.at
        if word := _WORD.match(self.command, start):
            if word[0] == "case" and self._fresh and self.context in ("(", "$("):
                self._push(_AMBIGUOUS)  # its patterns end in a `)` that closes nothing
            self.skip(word.end())
            return word[0]
        self.at += 1
        if self.command[start] == "\n" and self._heredoc:
            self._push("<<")
        self._handlers.get(self.context, self._in_code)(self.command[start])
        return self.command[start : self.at]

    def skip(self, to: int) -> None:
        """Continue after a placeholder or a word."""
        self.at = to
        self._fresh = False
        if self.context == "${{":
            self._stack.pop()

    def _push(self, opened: str) -> None:
        self._opened_at[len(self._stack) :] = [self.at]
        self._stack.append(opened if len(self._stack) < _MAX_DEPTH else _AMBIGUOUS)

    def _next(self, text: str) -> bool:
        return self.command.startswith(text, self.at)

    def _in_single(self, char: str) -> None:
        if char == "'":
            self._stack.pop()

    def _in_ansi(self, char: str) -> None:
        if char == "\\" and self._next("'"):
            self._push(_AMBIGUOUS)  # only in shells that do not support $'…' does this `'` end the quotes
        elif char == "\\":
            self.at += 1
        elif char == "'":
            self._stack.pop()

    def _in_double(self, char: str) -> None:
        if char == "\\":
            self.at += 1
        elif char == '"':
            self._stack.pop()
        else:
            self._open(char, brace='"${')

    def _in_backquotes(self, char: str) -> None:
        """Handle a character in back-quotes; only the next back-quote ends them, even in quotes or comments."""
        if char == "\\":
            self.at += 1
        elif char == "`":
            self._stack.pop()

    def _in_comment(self, char: str) -> None:
        if char == "\n":
            self._stack.pop()
            self._in_code(char)

    def _in_braces(self, char: str) -> None:
        if char == "\\":
            self.at += 1
        elif char in "'\"":
            self._push(char)
        elif char == "}":
            self._stack.pop()
        else:
            self._open(char, brace="${")

    def _in_quoted_braces(self, char: str) -> None:
        if char == "\\":
            self.at += 1
        elif char in "'\"":
            self._push(_AMBIGUOUS)
        elif char == "}":
            self._stack.pop()
        else:
            self._open(char, brace='"${')

    def _in_arithmetic(self, char: str) -> None:
        if char in "'\"`#\\;\n":
            self._push(_AMBIGUOUS)  # not arithmetic, but a command substitution that begins with a subshell: `$( (`
        elif char == "(":
            self._push("$((")
        elif char == ")":
            self._stack.pop()

    def _in_code(self, char: str) -> None:
        fresh, self._fresh = self._fresh, char in " \t\n;&|<>()"
        if char == "\\":
            self._fresh = fresh and self._next("\n")
            self.at += 1
        elif char in "'\"":
            self._push(char)
        elif char == "$" and self._next("'"):
            self.at += 1
            self._push("$'")
        elif char == "#" and fresh:
            self._push("#")
        elif char == "<" and self._next("<<"):
            self.at += 2  # one word follows, no document
        elif char == "<" and self._next("<"):
            self.at += 1
            self._heredoc = True
        elif char == "(":
            self._push("(")
        elif char == ")" and self.context in ("(", "$("):
            self._fresh = self._stack.pop() == "("
        else:
            self._open(char, brace="${")

    def _open(self, char: str, *, brace: str) -> None:
        if char == "`":
            self._push("`")
        elif char in "$<" and self._next("\\\n"):
            self._push(_AMBIGUOUS)  # the shell joins the next line to this one
        elif char == "$" and self._next("$"):
            self.at += 1  # `$$`, the pid of the shell
        elif char == "$" and self._next("(("):
            self.at += 2
            self._push("$((")
            self._push("$((")
        elif char == "$" and self._next("("):
            self.at += 1
            self._push("$(")
            self._fresh = True
        elif char == "$" and _PLACEHOLDER.match(self.command, self.at):
            self._push("${{")
        elif char == "$" and self._next("{"):
            self.at += 1
            self._push(brace)
