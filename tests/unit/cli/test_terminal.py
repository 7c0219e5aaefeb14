"""Printed texts cannot control a terminal, cause a traceback or forge a line."""

from __future__ import annotations

import ast
import io
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

import drumline
from drumline.cli import show_error, terminal
from drumline.errors import EngineError, InputError, Problem, SeveralError, SpecError

SOURCE = Path(drumline.__file__).parent
texts = st.text(st.characters() | st.sampled_from("\n\r\x1b\x07\x9b\u202e\ud800"), max_size=40)


class Printed:
    """Streams with an encoding, which record what is written to them."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self.streams = [io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True) for _ in range(2)]

    def by(self, action: Callable[[], object]) -> str:
        with redirect_stdout(self.streams[0]), redirect_stderr(self.streams[1]):
            action()
        return "".join(stream.buffer.getvalue().decode(stream.encoding) for stream in self.streams)


class _TerminalStream(io.TextIOWrapper[io.BytesIO] if TYPE_CHECKING else io.TextIOWrapper):  # type: ignore[misc]
    def isatty(self) -> bool:
        return True


class Terminal(Printed):
    """Streams that report that they are a terminal."""

    def __init__(self) -> None:
        super().__init__()
        self.streams = [_TerminalStream(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2)]


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
@pytest.mark.parametrize(
    "action",
    [
        terminal.print_line,
        lambda text: terminal.print_line(text, err=True),
        lambda text: terminal.print_lines([text]),
        lambda text: terminal.print_json({text: [text]}),
    ],
)
@given(text=texts)
def test_any_text_is_printed_without_control_characters(
    action: Callable[[str], object], encoding: str, text: str
) -> None:
    printed = Printed(encoding).by(lambda: action(text))
    assert printed.replace("\n", "").isprintable()
    assert printed.endswith("\n")


@given(text=texts)
def test_a_line_is_one_line(text: str) -> None:
    assert Printed().by(lambda: terminal.print_line(text)).count("\n") == 1


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@given(text=texts.filter(lambda text: not re.search("[\ud800-\udbff][\udc00-\udfff]", text)))  # one character in JSON
def test_json_contains_the_text_unescaped(encoding: str, text: str) -> None:
    assert json.loads(Printed(encoding).by(lambda: terminal.print_json([text]))) == [text]


@given(message=texts, hint=texts)
def test_an_error_is_one_line(message: str, hint: str) -> None:
    lines = Printed().by(lambda: show_error(InputError(message, hint=hint))).split("\n")[:-1]
    assert "".join(lines).isprintable()
    labels = [line.partition(" ")[0] for line in lines if not line.startswith("  ")]
    assert labels == (["error:", "hint:"] if hint else ["error:"])


@given(texts)
def test_a_problem_of_a_spec_is_one_line(message: str) -> None:
    error = SpecError([Problem("drumline.yml", 3, "roles", message)])
    lines = Printed().by(lambda: show_error(error)).split("\n")[:-1]
    assert len(lines) == 2
    assert lines[0].startswith("drumline.yml:3: roles: ")
    assert lines[1] == "error: one problem; nothing was done"


def test_further_lines_of_a_message_are_indented() -> None:
    error = SeveralError([EngineError("h1: refused\nerror: forged\n  a.bin  3.0 MB", hint="look\nthere")])
    assert Printed().by(lambda: show_error(error)).splitlines() == [
        "error: h1: refused",
        "  error: forged",
        "  a.bin  3.0 MB",
        "hint: look",
        "  there",
    ]


def test_a_terminal_gets_the_colours_of_labels_and_no_other_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    printed = Terminal().by(lambda: terminal.print_error("a\x1b[2Jb"))
    assert printed == "\x1b[31m\x1b[1merror:\x1b[0m a\\x1b[2Jb\n"


def test_a_document_is_exact_in_a_pipe_and_escaped_on_a_terminal() -> None:
    text = "export A='x\x1b[2J\u202ecaf\udce9'\n\tb\r\n"
    streams = Printed()
    with redirect_stdout(streams.streams[0]):
        terminal.print_document(text)
    assert streams.streams[0].buffer.getvalue() == text.encode("utf-8", "surrogateescape")
    shown = Terminal().by(lambda: terminal.print_document(text))
    assert shown == "export A='x\\x1b[2J\\u202ecaf\\udce9'\n\tb\r\n"


def test_a_document_with_a_lone_surrogate_is_printed() -> None:
    assert Printed().by(lambda: terminal.print_document("a\ud800\n")) == "a\\ud800\n"


def test_output_of_libraries_and_the_interpreter_is_escaped() -> None:
    program = """
import logging, sys, warnings
from drumline.cli import terminal
terminal.guard_streams()
terminal.guard_streams()
text = "a\\x1b]0;title\\x07\\x9b2J\\u202e\\ud800\\tb"
print(text)
logging.getLogger("asyncssh").error(text)
warnings.warn(text)
terminal.write(terminal.style(terminal.escape("red"), colour="red"))
raise ValueError(text)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=False, env={"PYTHONIOENCODING": "utf-8"}
    )
    assert done.returncode == 1
    shown = "a\\x1b]0;title\\x07\\x9b2J\\u202e\\ud800\tb"
    assert done.stdout.decode() == f"{shown}\n\x1b[31mred\x1b[0m\n"
    assert done.stderr.decode().count(shown) == 3
    assert "\x1b" not in done.stderr.decode()


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
@pytest.mark.parametrize("words", ["status -a", "status -a -o json", "schema", "events 9", "nonsense"])
def test_a_stream_that_is_closed_before_the_start_causes_no_traceback(tmp_path: Path, words: str, closed: str) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", f"exec {sys.executable} -m drumline {words} {closed}"],
        capture_output=True,
        check=False,
        cwd=tmp_path,
        env={"DRUMLINE_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == {"events 9": 4, "nonsense": 2}.get(words, 0)
    assert b"Traceback" not in done.stdout + done.stderr


# Modules that write to a stream themselves, with the calls that are allowed.
ALLOWED = {
    "cli/terminal.py": "escapes",
    "engine/agent/verbs.py": "an agent's log, on a host",
    "engine/log.py": "the supervisor's log",
    "engine/kubernetes/image/build.py": "a helper's log",
    "engine/kubernetes/output.py": "one sentence before a shell opens, by a stream that escapes",
    "engine/local/fault_injector.py": "why a link cannot be set, to the process that asked for it",
    "engine/ssh/output.py": "one sentence before a shell opens, by a stream that escapes",
    "supervise/detach.py": "the supervisor's log",
    "supervise/remote.py": "an answer, to an engine",
}
CLICK = {"echo", "secho", "style", "confirm", "prompt", "pause", "clear", "progressbar", "echo_via_pager", "edit"}
STREAM = {"write", "writelines", "buffer", "reconfigure", "detach"}


def writes(tree: ast.AST) -> Iterator[str]:
    """Yield what a module calls to write to stdout or stderr."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name("print")):
                yield "print"
            case ast.Attribute(ast.Name("click"), name) if name in CLICK:
                yield f"click.{name}"
            case ast.ImportFrom("click", names) if CLICK & {each.name for each in names}:
                yield "from click"
            case ast.ImportFrom("sys", names) if {"stdout", "stderr"} & {each.name for each in names}:
                yield "from sys"
            case ast.Attribute(ast.Attribute(ast.Name("sys"), "stdout" | "stderr" as stream), name) if name in STREAM:
                yield f"sys.{stream}.{name}"
            case ast.keyword(arg="file" | "stdout" | "stderr", value=ast.Attribute(ast.Name("sys"), stream)):
                yield f"to sys.{stream}"
            case ast.Call(ast.Attribute(ast.Name("os"), "write"), [ast.Constant(1 | 2), *_]):
                yield "os.write"
            case ast.Attribute(ast.Name("traceback"), name) if name.startswith("print"):
                yield f"traceback.{name}"


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        name = str(path.relative_to(SOURCE))
        if not name.startswith(("runtime/", "cli/templates/")):  # they run in replicas, which write to a log
            yield name, ast.parse(path.read_text())


def test_no_other_module_prints() -> None:
    found = {name: set(writes(tree)) for name, tree in modules() if name not in ALLOWED}
    assert {name: what for name, what in found.items() if what} == {}


def test_every_module_that_is_allowed_to_print_prints() -> None:
    """An exception that is no longer needed would hide a new call."""
    assert [name for name in ALLOWED if not set(writes(ast.parse((SOURCE / name).read_text())))] == []


def test_only_one_module_declares_texts_safe() -> None:
    for path in SOURCE.rglob("*.py"):
        if "Escaped" in (text := path.read_text()):
            calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
            declared = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "Escaped"]
            assert not declared or path == SOURCE / "cli/terminal.py", path
