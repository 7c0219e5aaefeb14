"""Write to the terminal; no other module of the command line does.

Most of what a command shows was written elsewhere: by a host, a pod, a replica, another user's process, in a file's
name. Every text is therefore escaped here: control characters, bidirectional overrides, lone surrogates and, unless
they separate lines that the caller passes one by one, newlines. Only sequences that drumline adds itself, by `style`
and in `frame` and `stream`, reach the terminal; the type `Escaped` marks texts that are safe to write.
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
    """Return a text as one line without anything that a terminal obeys."""
    return Escaped(printable(text))


def escape_block(text: str) -> Escaped:
    """Return a text whose line ends and tabs are kept and all other control characters escaped."""
    return Escaped("".join(part if part in _KEPT else printable(part) for part in re.split(r"(\r?\n|\t)", text)))


def style(text: Escaped, *, colour: str | None = None, bold: bool | None = None, dim: bool | None = None) -> Escaped:
    """Return a text in a colour, for a terminal."""
    return Escaped(click.style(text, fg=colour, bold=bold, dim=dim))


def join(parts: Iterable[Escaped], between: str = "") -> Escaped:
    """Return texts one behind the other."""
    return Escaped(escape_block(between).join(parts))


def move_up(lines: int) -> Escaped:
    """Return the sequence that goes up by so many lines and clears all below."""
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
    """Return the size of the terminal that stdout is; None if it is none."""
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
    """Print why a command has failed, and what to do, on stderr."""
    _print_labelled("error:", "red", message, bold=True)
    if hint:
        print_hint(hint)


def print_hint(text: str) -> None:
    """Print what to do, on stderr."""
    _print_labelled("hint:", "cyan", text)


def print_warning(text: str) -> None:
    """Print what does not stop a command, on stderr."""
    _print_labelled("warning:", "yellow", text)


def _print_labelled(label: str, colour: str, text: str, *, bold: bool | None = None) -> None:
    """Print a text behind a label; its further lines are indented, so that none of them can pass for another label."""
    first, *rest = text.split("\n")
    name = style(escape(label), colour=colour, bold=bold) if has_colour(err=True) else escape(label)
    lines = [join((name, escape(f" {first}")))]
    lines += [escape(line if line.startswith(_INDENT) else f"{_INDENT}{line}") for line in rest if line.strip()]
    write(join(lines, "\n"), err=True)


def print_json(data: object) -> None:
    """Print data for a program."""
    print_lines(json_lines(data))


def json_lines(data: object) -> list[str]:
    """Return data as lines of JSON; what a terminal might obey is written as JSON escapes it."""
    text = json.dumps(data, indent=2, ensure_ascii=not _encoding(sys.stdout).lower().startswith("utf"))
    return [
        line if line.isprintable() else "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in line)
        for line in text.split("\n")
    ]


def print_document(text: str) -> None:
    """Print a file's content: exactly, in UTF-8, unless it is shown on a terminal.

    Surrogates that stand for bytes of a file's name become these bytes.
    """
    if is_terminal():
        write(escape_block(text), end="")
        return
    try:
        data = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # other surrogates stand for nothing
        data = text.encode("utf-8", "backslashreplace")
    if sys.stdout is not None:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def print_traceback(error: BaseException) -> None:
    """Print an error that nothing was prepared for, on stderr."""
    import traceback  # noqa: PLC0415 - every command imports this module, and hardly any needs that one

    trace = "".join(traceback.format_exception(error))
    print_error(f"this is a defect of drumline:\n{trace}", hint="report it with the lines above")


def confirm(question: str) -> None:
    """Ask on stderr; raise click.Abort if the answer is no."""
    click.confirm(escape(question), abort=True, err=True)


def write(text: Escaped, *, end: str = "\n", err: bool = False) -> None:
    """Write a text that is safe; characters that the stream's encoding does not have are escaped."""
    stream = _stream(err=err)
    if stream is None:  # it was closed before drumline started
        return
    encoding = _encoding(stream)
    encodable = f"{text}{end}".encode(encoding, "backslashreplace").decode(encoding)
    if isinstance(stream, _EscapingStream):
        stream.write_escaped(encodable)
    else:
        stream.write(encodable)
    stream.flush()


def write_bytes(descriptor: int, data: bytes | bytearray) -> None:
    """Write all of these bytes, which are safe, to a descriptor; exit with 141 if the reader has closed it."""
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(descriptor, view) :]
    except BrokenPipeError:
        raise SystemExit(141) from None  # click would exit with 1, which is a failed run


def stdout_descriptor() -> int:
    """Return the descriptor of stdout; one that takes and drops everything if stdout was closed before the start."""
    return os.open(os.devnull, os.O_WRONLY) if sys.stdout is None else sys.stdout.fileno()


def flush() -> None:
    """Write what is buffered."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()


def guard_streams() -> None:
    """Escape also what libraries and the interpreter itself print: log records, warnings, tracebacks."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper) and not isinstance(stream, _EscapingStream):
            stream.flush()
            setattr(sys, name, _EscapingStream(stream))


class _EscapingStream(io.TextIOWrapper):
    """A text stream that escapes what is written to it."""

    def __init__(self, stream: io.TextIOWrapper) -> None:
        super().__init__(
            stream.buffer,
            encoding=stream.encoding,
            errors="backslashreplace",
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )
        self._stream = stream  # it closes the buffer when it is collected

    def write(self, text: str, /) -> int:
        super().write(escape_block(text))
        return len(text)

    def write_escaped(self, text: str) -> None:
        """Write a text that is safe."""
        super().write(text)


def _stream(*, err: bool) -> TextIO | None:
    return sys.stderr if err else sys.stdout


def _encoding(stream: TextIO | None) -> str:
    return getattr(stream, "encoding", None) or "utf-8"
