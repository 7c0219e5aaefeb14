"""Durations do not depend on changes of the wall clock, except between two boots."""

from __future__ import annotations

from drumline.store.clock import Moment, read_clock


def test_a_duration_is_measured_with_the_monotonic_clock() -> None:
    assert Moment(0.0, 130.0, "a").seconds_since(Moment(3600.0, 100.0, "a")) == 30.0


def test_between_two_boots_a_duration_is_measured_with_the_wall_clock() -> None:
    assert Moment(3600.0, 5.0, "b").seconds_since(Moment(3000.0, 100.0, "a")) == 600.0


def test_a_clock_set_back_between_two_boots_makes_no_negative_length() -> None:
    assert Moment(1000.0, 5.0, "b").seconds_since(Moment(3000.0, 100.0, "a")) == 0.0


def test_the_clock_does_not_go_back() -> None:
    earlier, later = read_clock(), read_clock()
    assert earlier.boot == later.boot
    assert later.since_boot >= earlier.since_boot > 0
