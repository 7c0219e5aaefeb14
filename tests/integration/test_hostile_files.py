"""`drumline check` of hostile files: a sentence, exit code 2, in bounded time and memory."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

# Address space in KiB and CPU time in seconds of the command only: the load of the machine makes no difference.
LIMITED = ("sh", "-c", 'ulimit -v 1048576; ulimit -t 20; exec "$@"', "sh")

GOOD = "project: digits\nrun: python train.py\n"
TOO_LARGE = "is larger than 1 MB, the limit for a spec"
TOO_MANY = "more than 200000 values, aliases counted as often as they are used"
TOO_DEEP = "nested more than 40 levels deep"
NO_TAGS = "tags are not supported: remove `%TAG`"
NO_KEY = "not valid YAML: this `:` does not belong to a key; check the indentation and quotes"
NO_ESCAPE = "not valid YAML: a `\\` in double quotes that begins no known escape; use single quotes"
NO_PORT = 'port: expected a whole number from 1 to 65535, got "zero"'
NO_MAPPING = "expected keys with their values, such as `project: digits`, got a list"
NOT_UTF_8 = "is not UTF-8: byte 0x{} does not belong there; save it as UTF-8"
EMPTY = "is empty; `drumline init` writes a spec to start from"


def check(
    *arguments: str, cwd: Path, stdin: int = subprocess.DEVNULL, limited: tuple[str, ...] = LIMITED
) -> tuple[int, str, str]:
    """Run the real command; return its exit code, output and errors."""
    done = subprocess.run(
        [*limited, sys.executable, "-m", "drumline", "check", *arguments],
        cwd=cwd,
        env={"PATH": os.environ["PATH"], "HOME": str(cwd), "LC_ALL": "C.UTF-8"},
        stdin=stdin,
        capture_output=True,
        timeout=240,
        check=False,
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def one_problem(place: str, message: str) -> tuple[int, str, str]:
    return 2, "", f"{place}: {message}\nerror: one problem; nothing was done\n"


def refused(message: str, hint: str = "") -> tuple[int, str, str]:
    return 2, "", f"error: {message}\n" + (f"hint: {hint}\n" if hint else "")


def laughs(width: int, depth: int) -> bytes:
    """Each line a list of aliases of the line before: width ** depth values, if they were written out."""
    lines = ["x-0: &a0 [ha]", *(f"x-{n}: &a{n} [{', '.join([f'*a{n - 1}'] * width)}]" for n in range(1, depth))]
    return "\n".join(lines).encode()


FILES = [
    ("ten megabytes", b"a: 1\n" * 2_000_000, "", TOO_LARGE),
    ("a hundred thousand brackets", b"[" * 100_000, ":1", TOO_DEEP),
    ("a hundred thousand closed brackets", b"[" * 100_000 + b"]" * 100_000, ":1", TOO_DEEP),
    ("a hundred thousand braces", b"{a: " * 100_000, ":1", TOO_DEEP),
    ("a hundred thousand dashes", b"- " * 100_000, ":1", TOO_DEEP),
    ("a hundred thousand question marks", b"? " * 100_000, ":1", TOO_DEEP),
    ("indented without end", b"".join(b" " * n + b"a:\n" for n in range(1400)), ":41", TOO_DEEP),
    ("a billion laughs", laughs(10, 10), ":6", TOO_MANY),
    ("many short laughs", laughs(2, 1000), ":17", TOO_MANY),
    ("a long chain of aliases", laughs(1, 9999), ":630", TOO_MANY),
    ("an alias that contains itself", b"x: &a\n  - [*a]\n", ":2", "`*a` contains itself"),
    ("half a million values", b"x-a: [" + b"1," * 450_000 + b"]", ":1", TOO_MANY),
    (
        "sixty thousand tag directives",
        b"".join(b"%%TAG !%d! a\n" % n for n in range(60_000)) + b"---\na: 1",
        ":1",
        NO_TAGS,
    ),
    ("one long key", b"a" * 900_000 + b": 1", ":1", NO_KEY),
    ("a NUL byte", b"project: digits\nrun: \0\n", ":2", "NUL byte in the text; is this a YAML file?"),
    ("a program", b"\x7fELF\x02\x01\x01\0", ":1", "control character 0x7f in the text; is this a YAML file?"),
    ("a picture", b"\x89PNG\r\n\x1a\n\0", ":1", NOT_UTF_8.format("89")),
    ("UTF-16", GOOD.encode("utf-16-le"), ":1", "NUL byte in the text; is this a YAML file?"),
    ("UTF-16 with its mark", b"\xff\xfe" + GOOD.encode("utf-16-le"), "", "is UTF-16; save it as UTF-8"),
    ("big-endian UTF-16 with its mark", b"\xfe\xff" + GOOD.encode("utf-16-be"), "", "is UTF-16; save it as UTF-8"),
    ("Latin-1", "project: digits\nrun: café\n".encode("latin-1"), ":2", NOT_UTF_8.format("e9")),
    ("a lone surrogate", b"project: \xed\xa0\x80\n", ":1", NOT_UTF_8.format("ed")),
    ("a lone surrogate, escaped", b'project: x\nrun: "\\ud800"\n', ":2", NO_ESCAPE),
    ("lines of Windows", b"project: digits\r\nrun: x\r\nport: zero\r\n", ":3", NO_PORT),
    ("a mark and a problem", b"\xef\xbb\xbfproject: digits\nrun: x\nport: zero\n", ":3", NO_PORT),
    ("nothing", b"", "", EMPTY),
    ("only a mark", b"\xef\xbb\xbf", "", EMPTY),
    ("only blanks", b"\n  \n\n", "", EMPTY),
    ("only comments", b"# project: digits\n# run: x\n", "", EMPTY),
]


@pytest.mark.parametrize(("data", "line", "message"), [pytest.param(*file[1:], id=file[0]) for file in FILES])
def test_a_hostile_file_gets_one_sentence(tmp_path: Path, data: bytes, line: str, message: str) -> None:
    (tmp_path / "drumline.yml").write_bytes(data)
    assert check(cwd=tmp_path) == one_problem(f"drumline.yml{line}", message)


def test_a_problem_on_every_line_is_not_printed_for_every_line(tmp_path: Path) -> None:
    (tmp_path / "drumline.yml").write_text(GOOD + "".join(f"key{n}: 1\n" for n in range(60_000)))
    code, output, errors = check(cwd=tmp_path)
    assert (code, output) == (2, "")
    assert len(errors.splitlines()) == 102
    assert errors.endswith(
        "drumline.yml:102: too many problems; checking stopped\nerror: 101 problems; nothing was done\n"
    )


@pytest.mark.parametrize(
    "data", [GOOD.replace("\n", "\r\n").encode(), b"\xef\xbb\xbf" + GOOD.encode()], ids=["lines of Windows", "mark"]
)
def test_a_valid_file_with_windows_line_ends_is_accepted(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "drumline.yml").write_bytes(data)
    code, output, errors = check(cwd=tmp_path)
    assert (code, errors) == (0, "")
    assert output.startswith("drumline.yml is fine: digits, 1 worker, tensorflow, on local\n")


def test_a_deeply_nested_shell_command_is_checked_in_time(tmp_path: Path) -> None:
    tangled = "(" * 200_000 + "`{{ x }}" * 30_000
    (tmp_path / "drumline.yml").write_text(f"project: digits\nparameters: {{x: 1}}\nrun: |\n  {tangled}\n")
    code, output, errors = check(cwd=tmp_path)
    assert (code, output) == (2, "")
    assert errors.startswith("drumline.yml:3: run: `{{ x }}` cannot be filled in safely in ")
    assert errors.endswith("\nerror: one problem; nothing was done\n")


def test_a_directory_is_refused_as_a_spec(tmp_path: Path) -> None:
    assert check(".", cwd=tmp_path) == refused(".: is a directory", "name a file, such as `drumline.yml`")
    (tmp_path / "drumline.yml").mkdir()
    hint = "name a file, such as `drumline.yml/drumline.yml`"
    assert check(cwd=tmp_path) == refused("drumline.yml: is a directory", hint)


def test_a_pipe_that_its_writer_closes_at_once_is_empty(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.open("wb").close())
    writer.start()
    assert check("pipe", cwd=tmp_path) == one_problem("pipe", EMPTY)
    writer.join()


@pytest.mark.parametrize(
    ("file", "answer"),
    [
        ("/dev/zero", one_problem("/dev/zero", TOO_LARGE)),
        ("/dev/null", one_problem("/dev/null", EMPTY)),
        ("nowhere.yml", refused("nowhere.yml: no such file", "`drumline init` writes a drumline.yml")),
        ("good.yml/drumline.yml", refused("good.yml/drumline.yml: cannot be read: Not a directory")),
        ("x" * 300, refused(f"{'x' * 300}: cannot be read: File name too long")),
        ("loop", refused("loop: cannot be read: Too many levels of symbolic links")),
        ("dangling", refused("dangling: no such file", "`drumline init` writes a drumline.yml")),
        ("two\nlines\x1b[31m", refused("two\\nlines\\x1b[31m: no such file", "`drumline init` writes a drumline.yml")),
        ("bad\nname.yml", one_problem("bad\\nname.yml:1", NO_MAPPING)),
        ("./-x.yml", one_problem("./-x.yml", EMPTY)),
    ],
    ids=lambda value: ascii(value)[:20],
)  # fmt: skip
def test_a_path_that_is_no_readable_spec_gets_one_sentence(
    tmp_path: Path, file: str, answer: tuple[int, str, str]
) -> None:
    (tmp_path / "good.yml").write_text(GOOD)
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "bad\nname.yml").write_text("- a list\n")
    (tmp_path / "-x.yml").touch()
    assert check(file, cwd=tmp_path) == answer


def test_a_file_named_like_an_option_can_be_named(tmp_path: Path) -> None:
    (tmp_path / "-x.yml").write_text("- a list\n")
    assert check("--", "-x.yml", cwd=tmp_path) == one_problem("-x.yml:1", NO_MAPPING)


def test_a_file_name_that_is_not_utf_8_is_shown_escaped(tmp_path: Path) -> None:
    (tmp_path / "caf\udce9.yml").write_text(GOOD)
    code, output, errors = check("caf\udce9.yml", cwd=tmp_path)
    assert (code, errors) == (0, "")
    assert output.startswith("caf\\udce9.yml is fine: digits")


def test_no_file_at_all_gets_one_sentence(tmp_path: Path) -> None:
    assert check(cwd=tmp_path) == refused("there is no drumline.yml here", "`drumline init` writes one, or name a file")


def test_standard_input_is_bounded_like_a_file(tmp_path: Path) -> None:
    with Path("/dev/zero").open("rb") as endless:
        assert check("-", cwd=tmp_path, stdin=endless.fileno()) == one_problem("<stdin>", TOO_LARGE)
    assert check("-", cwd=tmp_path) == one_problem("<stdin>", EMPTY)


def test_standard_input_that_is_closed_gets_one_sentence(tmp_path: Path) -> None:
    closed = ("sh", "-c", 'exec "$@" <&-', "sh")
    assert check("-", cwd=tmp_path, limited=closed) == refused("<stdin>: cannot be read: it is closed")


def test_a_folder_that_is_gone_gets_one_sentence(tmp_path: Path) -> None:
    gone = ("sh", "-c", 'mkdir gone; cd gone; rmdir ../gone; echo "project: x" | "$@"', "sh")
    assert check("-", cwd=tmp_path, limited=gone) == refused(
        "the current folder has been deleted", "`cd` to another folder"
    )
