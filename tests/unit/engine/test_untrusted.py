"""Data from another machine is parsed within limits, or refused with ValueError and no other error."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumline.engine.untrusted import clean_text, last_line, load_json, load_record, require_path
from drumline.record import Record

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec=None)), inner),
)


class Pair(Record):
    """A record."""

    name: str
    number: int = 0


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"NaN",
        b"[Infinity]",
        b"-Infinity",
        b"1e999",
        b"1e300",
        b"9" * 5000,
        b"9223372036854775808",
        b"-1",
        b"-0.5",
        b"[" * 40 + b"]" * 40,
        b"[" * 200_000,
        b"[" + b"[]," * 1_000_000 + b"[]]",
    ],
    ids=lambda data: data[:20].decode(errors="replace"),
)
def test_values_out_of_range_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".*"):
        load_json(data)


@given(JSON)
def test_accepted_values_can_be_written_to_files(value: Any) -> None:
    try:
        found = load_json(json.dumps(value).encode())
    except ValueError:
        return
    written = json.dumps(found, allow_nan=False, ensure_ascii=False).encode()
    assert load_json(written) == found


def test_a_lone_surrogate_is_replaced() -> None:
    assert load_json(b'{"a\\ud800": ["\\udc80"]}') == {"a\ufffd": ["\ufffd"]}
    assert clean_text("a\udcffb") == "a\ufffdb"


def test_names_of_files_keep_their_bytes_and_no_other_surrogates() -> None:
    assert load_json(b'"\\udc80"', names=True) == "\udc80"
    with pytest.raises(ValueError, match="not Unicode"):
        load_json(b'"\\ud800"', names=True)


def test_numbers_may_be_negative_where_they_are_signed() -> None:
    assert load_json(b"[-1, -0.5]", signed=True) == [-1, -0.5]


def test_a_record_is_built_from_its_fields() -> None:
    assert load_record(Pair, {"name": "a", "number": 2}) == Pair("a", 2)
    assert load_record(Pair, {"name": "a"}) == Pair("a")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (None, "expected dict"),
        ([], "expected dict"),
        (1, "expected dict"),
        ({}, "'name'"),
        ({"name": 1}, "expected str, got 1"),
        ({"name": "a", "number": True}, "expected int, got True"),
        ({"name": "a", "x": 1}, "x is no field"),
    ],
)
def test_data_that_does_not_match_a_record_is_refused(data: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        load_record(Pair, data)


def test_the_error_about_an_invalid_record_is_short() -> None:
    with pytest.raises(ValueError, match=r"^y") as caught:
        load_record(Pair, {"name": "a", "y" * 500: 1})
    assert len(str(caught.value)) == 200


@pytest.mark.parametrize("data", [b"0", b"9223372036854775807", b"0.5", b"99999999999.5", b"[1,[]]"])
def test_values_just_within_the_limits_are_accepted(data: bytes) -> None:
    assert load_json(data, most_values=3) == json.loads(data)
    with pytest.raises(ValueError, match="too many values"):
        load_json(b"[1,[]]", most_values=2)


@pytest.mark.parametrize(("opened", "closed"), [("[", "]"), ('{"a":', "}")])
def test_values_are_at_most_32_deep(opened: str, closed: str) -> None:
    assert load_json(f"{opened * 31}1{closed * 31}".encode())
    with pytest.raises(ValueError, match="nested too deeply"):
        load_json(f"{opened * 32}1{closed * 32}".encode())


def test_the_last_line_of_stderr_is_used() -> None:
    assert last_line("first\n  second \n\n") == "second"
    assert last_line(" \n") == "no message"


def test_a_long_text_is_truncated() -> None:
    assert len(clean_text("x" * 5000)) == 2000
    assert clean_text("abc", 2) == "a…"
    assert clean_text("abc", 3) == "abc"


@pytest.mark.parametrize("path", ["", "a", "~/a", "/a\0b", "/a\nb", "/" + "x" * 5000, "/\udc80"])
def test_a_path_is_absolute_and_printable(path: str) -> None:
    with pytest.raises(ValueError, match="not an absolute path") as caught:
        require_path(path)
    assert str(caught.value) == f"not an absolute path: {path[:100]!r}"


@pytest.mark.parametrize("path", [None, "/", "/a b", "/" + "x" * 4095])
def test_a_path_or_none_is_accepted(path: str | None) -> None:
    assert is_path(path)


def is_path(path: str | None) -> bool:
    try:
        require_path(path)
    except ValueError:
        return False
    return True


def test_a_path_has_at_most_4096_characters() -> None:
    assert not is_path("/" + "x" * 4096)
