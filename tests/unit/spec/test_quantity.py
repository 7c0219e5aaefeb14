"""Amounts with a unit."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumline.spec.quantity import format_bytes, format_seconds, parse_bytes, parse_seconds, parse_seconds_or_never
from scaffold.strategies import amounts

AMOUNTS = [
    ("1B", 1),
    ("16GiB", 16 * 1024**3),
    ("16 GiB", 16 * 1024**3),
    ("16Gi", 16 * 1024**3),
    ("16GB", 16 * 1000**3),
    ("16G", 16 * 1000**3),
    ("500k", 500_000),
    ("500K", 500_000),
    ("500KiB", 500 * 1024),
    ("1.5TiB", 3 * 1024**4 // 2),
    ("0.1GiB", 107_374_182),
    ("1024PiB", 1024**6),
    ("1152921504606846975B", 1024**6 - 1),
]
TIMES = [
    ("30s", 30.0),
    ("30", 30.0),
    ("1.5", 1.5),
    ("5m", 300.0),
    ("1 h", 3600.0),
    ("2d", 172_800.0),
    ("250ms", 0.25),
    ("0.3ms", 0.0),
    ("0", 0.0),
    ("36500d", 3_153_600_000.0),
]


@pytest.mark.parametrize(("text", "amount"), AMOUNTS)
def test_memory_is_read_to_the_byte(text: str, amount: int) -> None:
    assert parse_bytes(text) == amount


@pytest.mark.parametrize(
    "text", ["", "GiB", "-1GiB", "16gb", "16 GiB ", "1e3B", "1iB", "16GIB", "٣GiB", "1.GiB", ".5GiB"]
)
def test_an_invalid_amount_of_memory_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^an amount of memory such as 16GiB or 500MB$"):
        parse_bytes(text)


@pytest.mark.parametrize("text", ["16", "0", "1.5", "16000000000"])
def test_memory_without_a_unit_is_refused_with_two_suggested_amounts(text: str) -> None:
    with pytest.raises(ValueError, match=rf"^memory with a unit, such as {text}GiB or {text}MiB$"):
        parse_bytes(text)


@pytest.mark.parametrize("text", ["0B", "0.0GiB", "0.0001B", "1025PiB", "9999999999999999999B"])
def test_zero_and_absurdly_much_memory_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^an amount of memory from 1B to 1024PiB$"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (1, "1B"),
        (1024, "1KiB"),
        (1000, "1kB"),
        (1536, "1.5KiB"),
        (16 * 1024**3, "16GiB"),
        (10**9, "1GB"),
        (1025, "1025B"),
        (1024**6 - 1, "1152921504606846975B"),
    ],
)
def test_memory_is_written_with_the_largest_unit_that_fits(amount: int, text: str) -> None:
    assert format_bytes(amount) == text


@given(amounts)
def test_memory_that_is_written_reads_back_exactly(amount: int) -> None:
    assert parse_bytes(format_bytes(amount)) == amount


@pytest.mark.parametrize(("text", "seconds"), TIMES)
def test_time_is_read_to_the_millisecond(text: str, seconds: float) -> None:
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "s", "-5", "1e3", "1w", "5M", "5min", "12:30", "soon", "inf", "1 2s", "99999999999"]
)
def test_an_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^a time such as 30s, 5m or 1h$"):
        parse_seconds(text)


def test_a_duration_of_more_than_a_century_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^a time of at most 36500d$"):
        parse_seconds("36500.1d")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0s"),
        (0.25, "0.25s"),
        (30.0, "30s"),
        (90.0, "90s"),
        (300.0, "5m"),
        (5400.0, "90m"),
        (86400.0, "1d"),
        (1e6 + 1, "1000001s"),
    ],
)
def test_time_is_written_with_the_largest_unit_that_keeps_it_whole(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


@given(
    st.builds(
        lambda number, unit: f"{number}{unit}",
        st.integers(0, 36500) | st.decimals(0, 36500, allow_nan=False, allow_infinity=False, places=3),
        st.sampled_from(["", "ms", "s", "m", "h", "d"]),
    )
)
def test_time_that_is_written_reads_back_exactly(text: str) -> None:
    seconds = parse_seconds(text)
    assert parse_seconds(format_seconds(seconds)) == seconds


def test_a_timeout_is_a_duration_or_never() -> None:
    assert parse_seconds_or_never("30m") == 1800
    assert parse_seconds_or_never("never") == math.inf
    with pytest.raises(ValueError, match="a time such as 30s, 5m or 1h, or never"):
        parse_seconds_or_never("ever")
