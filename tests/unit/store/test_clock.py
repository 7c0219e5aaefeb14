"""Lengths of time, whatever was done to the clock on the wall."""

from __future__ import annotations

from drumline.store.clock import Moment, read_clock


def test_a_length_of_time_is_that_of_the_clock_that_never_goes_back() -> None:
    assert Moment(0.0, 130.0, "a").seconds_since(Moment(3600.0, 100.0, "a")) == 30.0


def test_between_two_boots_only_the_clock_on_the_wall_can_tell() -> None:
    assert Moment(3600.0, 5.0, "b").seconds_since(Moment(3000.0, 100.0, "a")) == 600.0


def test_a_clock_set_back_between_two_boots_makes_no_negative_length() -> None:
    assert Moment(1000.0, 5.0, "b").seconds_since(Moment(3000.0, 100.0, "a")) == 0.0


def test_time_passes() -> None:
    earlier, later = read_clock(), read_clock()
    assert earlier.boot == later.boot
    assert later.since_boot >= earlier.since_boot > 0
