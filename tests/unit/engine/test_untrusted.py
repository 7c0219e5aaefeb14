"""What another machine sends is parsed within limits, or refused with ValueError and nothing else."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumline.engine.untrusted import clean_text, load_json, load_record, require_path

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec=None)), inner),
)


class Pair(NamedTuple):
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
def test_what_is_out_of_range_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".*"):
        load_json(data)


@given(JSON)
def test_whatever_comes_through_can_be_written_down(value: Any) -> None:
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


@pytest.mark.parametrize("data", [None, [], 1, {}, {"name": 1}, {"name": "a", "number": True}, {"name": "a", "x": 1}])
def test_a_record_is_exactly_one(data: Any) -> None:
    with pytest.raises(ValueError, match=r".*"):
        load_record(Pair, data)


def test_a_long_text_is_cut() -> None:
    assert len(clean_text("x" * 5000)) == 2000
    assert clean_text("abc", 2) == "a…"


@pytest.mark.parametrize("path", ["", "a", "~/a", "/a\0b", "/a\nb", "/" + "x" * 5000, "/\udc80"])
def test_a_path_is_absolute_and_printable(path: str) -> None:
    with pytest.raises(ValueError, match="not an absolute path"):
        require_path(path)
