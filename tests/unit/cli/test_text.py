"""Times and durations as text."""

from __future__ import annotations

import pytest

from drumline.cli.text import utc
from drumline.words import format_duration


@pytest.mark.parametrize(
    ("seconds", "long", "short"),
    [
        (-5, "0s", "0s"),
        (0, "0s", "0s"),
        (0.04, "0.0s", "0s"),
        (0.44, "0.4s", "0s"),
        (9.94, "9.9s", "10s"),
        (12.4, "12s", "12s"),
        (60, "1m", "1m"),
        (185, "3m5s", "3m"),
        (3600, "1h", "1h"),
        (3605, "1h", "1h"),
        (7384, "2h3m", "2h"),
        (90_000, "1d1h", "1d"),
        (86_400 * 400, "400d", "400d"),
    ],
)
def test_a_duration_is_written_in_its_largest_units(seconds: float, long: str, short: str) -> None:
    assert (format_duration(seconds), format_duration(seconds, parts=1)) == (long, short)


def test_times_are_utc_to_the_second() -> None:
    assert utc(1_800_000_000.9) == "2027-01-15T08:00:00Z"
    assert utc(None) is None
