"""The list of unverified hosts: each with the time until which a replica may run there."""

from __future__ import annotations

from drumline.run.unverified import UnverifiedHost, unverified_from_text, unverified_to_text
from drumline.runtime.order import LEASE_GRACE_SECONDS, lease_ends_within


def test_each_host_is_a_line_with_its_time_if_there_is_one() -> None:
    hosts = [UnverifiedHost("me@gpu2", 1794797812.0), UnverifiedHost("gpu1")]
    assert unverified_to_text(hosts) == "gpu1\nme@gpu2 1794797812\n"
    assert unverified_from_text(unverified_to_text(hosts)) == [
        UnverifiedHost("gpu1"),
        UnverifiedHost("me@gpu2", 1794797812.0),
    ]


def test_a_list_without_times_is_read() -> None:
    assert unverified_from_text("gpu1\ngpu2\n") == [UnverifiedHost("gpu1"), UnverifiedHost("gpu2")]
    assert unverified_from_text("") == []


def test_a_replica_has_ended_some_time_after_its_lease() -> None:
    assert lease_ends_within(60.0) > 60.0 + LEASE_GRACE_SECONDS
