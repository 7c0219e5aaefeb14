"""Lines of logs on a terminal: harmless, and in time that grows with their length."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumline.cli.sanitize import chunks, last_state, last_states, plain, sanitize
from scaffold.growth import growth

HARD = [
    b"\r", b"\b", b"\n", b"\0", b"\x1b", b"\x1b[", b"\x1b[0", b"\x1b]", b"\x1b]0;", b"\x1bP", b" ", b"\r ", b"\r\n",
    b"x\r", b"\xff", b"\xc2\x07", b"\xc2\x9b", b"\xc2\x9b0", b"\x1b[m", b"a\x07", b"\xe2\x80\xae", b"\x1b(",
]  # fmt: skip
pieces = st.sampled_from([*HARD, b"text", b"[31m", b"2J", b"\x9b", b"\xc2", b"\\", b"\xe2\x80", b"\xae"])
logs = st.lists(pieces, max_size=30).map(b"".join) | st.binary(max_size=60)


@given(logs)
def test_only_colours_reach_a_terminal(data: bytes) -> None:
    shown = sanitize(data)
    without = "".join(part.partition("m")[2] if number else part for number, part in enumerate(shown.split("\x1b[")))
    assert all(char.isprintable() or char in "\n\t" or ord(char) > 0xFF for char in without)
    assert not set(shown) & {chr(code) for code in (*range(0x80, 0xA0), 0x202E, 0x2066, 0x2028)}
    assert shown.count("\n") == data.count(b"\n")
    assert all(line.endswith("\x1b[0m") for line in shown.split("\n") if "\x1b" in line)


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m\x1b[0m"),
        (b"\x1b\x1b[31mred", "\x1b[31mred\x1b[0m"),
        (b"a\x1b]0;title\x07b\x1b]52;c;ZXZpbA==\x1b\\c", "abc"),
        (b"a\x1bPq#0\x1b\\b\xc2\x90x\xc2\x9cc", "abc"),
        (b"a\xc2\x9b2Jb\xc2\x85c", "abc"),
        (b"a\x1b[2Jb\x1bcc\x1b[>4;2md", "abcd"),
        (b"a\xe2\x80\xaeb\xe2\x81\xa6c", "abc"),
        (b"\xc2\x07\x9b2J", "\ufffd\ufffd2J"),  # bytes that would be U+009B together
        (b"\xe2\x80\x00\xae", "\ufffd\ufffd"),
        (b"\x9b2J", "\ufffd2J"),
        ("naïve 🥁 עברית\t|".encode(), "naïve 🥁 עברית\t|"),
    ],
)
def test_sequences_are_removed_whole(data: bytes, shown: str) -> None:
    assert sanitize(data) == shown


@given(logs)
def test_a_bar_has_no_control_characters_at_all(data: bytes) -> None:
    line = plain(data.replace(b"\n", b""))
    assert "\x1b" not in line
    assert "\t" not in line


def states_one_by_one(line: bytes) -> bytes:
    return next((state for state in reversed(line.split(b"\r")) if state.strip()), b"")


@given(logs)
def test_a_line_shows_its_last_state_that_is_not_blank(data: bytes) -> None:
    line = data.replace(b"\n", b"")
    assert last_state(line) == states_one_by_one(line)
    lines = data.replace(b"\r\n", b"\n").split(b"\n")
    shown = [states_one_by_one(line) if b"\r" in line else line for line in lines]
    assert last_states(data).split(b"\n") == shown


@given(st.lists(st.binary(max_size=9), max_size=9).map(b"\n".join), st.integers(0, 3))
def test_chunks_are_whole_lines_and_all_of_them(data: bytes, more: int) -> None:
    data += (b"x" * 50_000 + b"\n") * more
    found = list(chunks(data))
    assert b"".join(found) == data
    assert all(chunk.endswith(b"\n") for chunk in found[:-1])


def show(data: bytes) -> None:
    for chunk in chunks(data):
        sanitize(last_states(chunk))


@pytest.mark.parametrize("unit", HARD)
def test_a_line_of_four_times_the_length_takes_about_four_times_as_long(unit: bytes) -> None:
    assert growth(show, b"x" + unit * ((1 << 18) // len(unit)), b"x" + unit * ((1 << 20) // len(unit))) < 10
