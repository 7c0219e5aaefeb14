"""Write to the terminal; no other module of the command line does.

Most texts that a command shows come from outside: from a host, a pod, a replica, another user's process, a file name.
Every text is therefore escaped here: control characters, bidirectional overrides, lone surrogates and newlines within
a line. Only sequences that drumline adds itself, by `style` and in `frame` and `stream`, reach the terminal; the type
`Escaped` marks texts that are safe to write.
"""

from __future__ import annotations

import io
import json
import os
import re
import sys
from collections.abc import Iterable
from typing import NewType, TextIO

import click

from drumline.words import printable

Escaped = NewType("Escaped", str)  # made by the functions of this module and nowhere else

_INDENT = "  "
_KEPT = ("\n", "\r\n", "\t")


def escape(text: str) -> Escaped:
    """Return a text as one line with all control characters escaped."""
    return Escaped(printable(text))


def escape_block(text: str) -> Escaped:
    """Return a text with its control characters escaped, except line ends and tabs."""
    return Escaped("".join(part if part in _KEPT else printable(part) for part in re.split(r"(\r?\n|\t)", text)))


def style(text: Escaped, *, colour: str | None = None, bold: bool | None = None, dim: bool | None = None) -> Escaped:
    """Return a text in a colour, for a terminal."""
    return Escaped(click.style(text, fg=colour, bold=bold, dim=dim))


def join(parts: Iterable[Escaped], between: str = "") -> Escaped:
    """Return the texts joined, with `between` between them."""
    return Escaped(escape_block(between).join(parts))


def move_up(lines: int) -> Escaped:
    """Return the sequence that moves up by so many lines and clears everything below."""
    return Escaped(f"\x1b[{lines}A\x1b[J" if lines else "\x1b[J")


def is_terminal(*, err: bool = False) -> bool:
    """Return whether stdout, or stderr, is a terminal."""
    stream = _stream(err=err)
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # it was closed
        return False


def has_colour(*, err: bool = False) -> bool:
    """Return whether colours are wanted: on a terminal that has them, unless NO_COLOR is set."""
    return is_terminal(err=err) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def terminal_size() -> os.terminal_size | None:
    """Return the size of the terminal; None if stdout is not a terminal."""
    try:
        return os.get_terminal_size(sys.stdout.fileno())
    except (OSError, ValueError, AttributeError):
        return None


def print_line(text: str = "", *, err: bool = False) -> None:
    """Print a text as one line."""
    write(escape(text), err=err)


def print_lines(lines: Iterable[str], *, err: bool = False) -> None:
    """Print texts, each as one line."""
    if escaped := [escape(line) for line in lines]:
        write(join(escaped, "\n"), err=err)


def print_error(message: str, hint: str = "") -> None:
    """Print an error and its hint on stderr."""
    _print_labelled("error:", "red", message, bold=True)
    if hint:
        print_hint(hint)


def print_hint(text: str) -> None:
    """Print a hint on stderr."""
    _print_labelled("hint:", "cyan", text)


def print_warning(text: str) -> None:
    """Print a warning on stderr."""
    _print_labelled("warning:", "yellow", text)


def _print_labelled(label: str, colour: str, text: str, *, bold: bool | None = None) -> None:
    """Print a text after a label; further lines are indented, so that they cannot imitate a label."""
    first, *rest = text.split("\n")
    name = style(escape(label), colour=colour, bold=bold) if has_colour(err=True) else escape(label)
    lines = [join((name, escape(f" {first}")))]
    lines += [escape(line if line.startswith(_INDENT) else f"{_INDENT}{line}") for line in rest if line.strip()]
    write(join(lines, "\n"), err=True)


def print_json(data: object) -> None:
    """Print data as JSON."""
    print_lines(json_lines(data))


def json_lines(data: object) -> list[str]:
    """Return data as lines of JSON, with control characters escaped as in JSON."""
    text = json.dumps(data, indent=2, ensure_ascii=not _encoding(sys.stdout).lower().startswith("utf"))
    return [
        line if line.isprintable() else "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in line)
        for line in text.split("\n")
    ]


def print_document(text: str) -> None:
    """Print a file's content: exactly, in UTF-8, unless it is shown on a terminal.

    Surrogates that represent bytes of a file name are written as these bytes.
    """
    if is_terminal():
        write(escape_block(text), end="")
        return
    try:
        data = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # other surrogates have no bytes
        data = text.encode("utf-8", "backslashreplace")
    if sys.stdout is not None:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def print_traceback(error: BaseException) -> None:
    """Print an unexpected error with its traceback on stderr."""
    import traceback  # noqa: PLC0415 - rarely needed

    trace = "".join(traceback.format_exception(error))
    print_error(f"this is a defect in drumline:\n{trace}", hint="report it with the lines above")


def confirm(question: str) -> None:
    """Ask a question on stderr; raise click.Abort unless the answer is yes."""
    click.confirm(escape(question), abort=True, err=True)


def write(text: Escaped, *, end: str = "\n", err: bool = False) -> None:
    """Write an escaped text; characters that the stream cannot encode are escaped too."""
    stream = _stream(err=err)
    if stream is None:  # the stream was closed before drumline started
        return
    encoding = _encoding(stream)
    encodable = f"{text}{end}".encode(encoding, "backslashreplace").decode(encoding)
    if isinstance(stream, _EscapingStream):
        stream.write_escaped(encodable)
    else:
        stream.write(encodable)
    stream.flush()


def write_bytes(descriptor: int, data: bytes | bytearray) -> None:
    """Write all of these bytes, already escaped, to a descriptor; exit with 141 if the reader has closed it."""
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(descriptor, view) :]
    except BrokenPipeError:
        raise SystemExit(141) from None  # click would exit with 1, which is a failed run


def stdout_descriptor() -> int:
    """Return the descriptor of stdout; that of /dev/null if stdout is closed."""
    return os.open(os.devnull, os.O_WRONLY) if sys.stdout is None else sys.stdout.fileno()


def flush() -> None:
    """Flush stdout and stderr."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()


def guard_streams() -> None:
    """Replace stdout and stderr, so that texts of libraries and the interpreter are escaped too: logs, tracebacks."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper) and not isinstance(stream, _EscapingStream):
            stream.flush()
            setattr(sys, name, _EscapingStream(stream))


class _EscapingStream(io.TextIOWrapper):
    """A text stream that escapes every text that is written to it."""

    def __init__(self, stream: io.TextIOWrapper) -> None:
        super().__init__(
            stream.buffer,
            encoding=stream.encoding,
            errors="backslashreplace",
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )
        self._stream = stream  # kept, since the stream closes the buffer when it is garbage-collected

    def write(self, text: str, /) -> int:
        super().write(escape_block(text))
        return len(text)

    def write_escaped(self, text: str) -> None:
        """Write a text that is already escaped."""
        super().write(text)


def _stream(*, err: bool) -> TextIO | None:
    return sys.stderr if err else sys.stdout


def _encoding(stream: TextIO | None) -> str:
    return getattr(stream, "encoding", None) or "utf-8"
