"""Which hosts are in doubt, and until when, is read as it was written."""

from __future__ import annotations

from drumline.run.doubt import Doubt, doubts_from_text, doubts_to_text
from drumline.runtime.order import LEASE_GRACE_SECONDS, lease_ends_within


def test_hosts_are_written_a_line_each_with_the_time_if_there_is_one() -> None:
    doubts = [Doubt("me@gpu2", 1794797812.0), Doubt("gpu1")]
    assert doubts_to_text(doubts) == "gpu1\nme@gpu2 1794797812\n"
    assert doubts_from_text(doubts_to_text(doubts)) == [Doubt("gpu1"), Doubt("me@gpu2", 1794797812.0)]


def test_a_list_without_times_is_one_too() -> None:
    assert doubts_from_text("gpu1\ngpu2\n") == [Doubt("gpu1"), Doubt("gpu2")]
    assert doubts_from_text("") == []


def test_a_replica_is_gone_some_time_after_its_lease() -> None:
    assert lease_ends_within(60.0) > 60.0 + LEASE_GRACE_SECONDS
