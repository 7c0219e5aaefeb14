"""The contract that every engine keeps, on a real cluster.

Not here are a few of its tests that a cluster cannot pass: it asks with TERM before it kills, however short the grace
is; it does not tell a process that a signal ended from one that exits with 128 and its number; a pod does not begin
before everybody's name is known, nor before its data are there, also where nobody makes them any more. What pods use is
known half a minute after they start (`test_metrics.py`). Not there at all: environments, since whoever is in an image
has one, TensorBoard, and whoever hurts a line.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.site import Ground, KubernetesSite
from contract import test_units as units
from contract.seat import watch, worker
from contract.sites import LASTING, Deed, wait_until
from contract.test_place import (  # noqa: F401
    test_a_line_that_has_ended_holds_nothing,
    test_an_attempt_under_way_is_placed_where_it_is,
    test_an_engine_writes_every_form_that_it_lists_and_each_the_same_twice,
    test_every_replica_has_an_address_of_its_own,
    test_nothing_is_started_or_stopped_before_somebody_watches,
    test_what_an_engine_objects_to_it_does_not_start,
    test_what_is_rendered_is_what_starts,
)
from contract.test_prepare import (  # noqa: F401
    test_a_helper_is_taken_up_and_not_started_again,
    test_a_helper_that_fails_is_the_cause_and_nobody_starts,
    test_a_run_that_is_killed_while_its_helper_works_ends,
    test_nobody_starts_before_the_helper_is_done,
)
from contract.test_return import (  # noqa: F401
    test_an_end_that_was_told_is_told_the_same_to_whoever_comes_back,
    test_ends_that_nobody_watched_are_told_as_they_were_in_the_order_in_which_they_came,
    test_who_lives_is_taken_up_and_not_started_again,
    test_whoever_comes_back_insists_where_the_first_had_only_asked,
    test_whoever_comes_back_may_stop_at_once,
)
from contract.test_runs import (  # noqa: F401
    test_a_line_that_falls_starts_again_as_a_whole,
    test_a_line_that_falls_too_often_has_failed,
    test_a_line_that_its_engine_refuses_has_failed,
    test_a_run_finishes,
    test_a_run_goes_on_under_another_supervisor,
    test_a_run_is_seen_as_it_was,
    test_a_run_that_is_killed_after_everybody_was_done_was_done,
    test_a_run_that_is_killed_before_it_began_starts_nobody,
    test_a_run_that_is_killed_by_force_ends_though_nobody_obeys,
    test_a_run_that_is_killed_ends,
    test_a_run_that_is_killed_without_its_supervisor_ends,
    test_a_supervisor_that_left_before_anybody_was_told_of_is_replaced,
    test_a_supervisor_that_left_while_it_stopped_the_line_is_replaced,
    test_ps_leave_after_the_workers,
    test_what_a_line_came_to_while_nobody_looked_is_what_the_run_came_to,
    test_who_fell_first_while_nobody_looked_is_the_cause,
)
from contract.test_start import (  # noqa: F401
    test_an_end_is_told_as_it_was,
    test_attempts_do_not_mix,
    test_each_start_and_each_end_is_told_once_in_that_order,
    test_lines_arrive_in_the_folder_of_the_life,
    test_nobody_is_started_twice,
    test_who_ends_at_once_has_started_before,
    test_who_goes_later_has_the_later_stamp,
)
from contract.test_stop import (  # noqa: F401
    test_patience_may_end_and_does_not_come_back,
    test_when_an_end_is_told_nothing_of_the_replica_is_left,
    test_who_cleans_up_first_ends_as_it_likes,
    test_who_does_not_obey_is_killed_when_the_grace_is_over_and_not_before,
    test_who_is_stopped_gently_ends_by_term,
    test_who_never_started_and_who_is_not_known_ends_unseen_once,
)
from contract.test_units import (  # noqa: F401
    test_who_has_returned_is_taken_up_by_the_next_supervisor,
    test_who_returns_begins_a_life_of_its_own_and_the_others_live_on,
    test_who_was_to_return_and_never_did_ends_unseen,
)
from drumline.run.event import Exit


@pytest.fixture
def site(request: pytest.FixtureRequest, ground: Ground, tmp_path: Path) -> Iterator[KubernetesSite]:
    """A place to try the engine; nothing of what was started there is left when the test has ended."""
    if any(each in request.node.name for each in ("code=143", "may_stop_at_once[0-9]")):
        pytest.skip("a cluster does not tell 143 from TERM, and asks before it kills")
    place = KubernetesSite(tmp_path, ground)
    try:
        yield place
        try:
            wait_until(lambda: not place.left())
        except AssertionError:
            raise AssertionError(place.describe()) from None
    finally:
        place.close()


def test_a_worker_rejoins_alone_and_is_seen_in_both_lives(site: KubernetesSite, tmp_path: Path) -> None:
    units.test_a_worker_rejoins_alone_and_is_seen_in_both_lives(site, tmp_path)


def test_all_start_again_when_a_ps_falls_under_whatever_supervisor(site: KubernetesSite, tmp_path: Path) -> None:
    units.test_all_start_again_when_a_ps_falls_under_whatever_supervisor(site, tmp_path)


def test_a_chief_comes_back_after_it_fell_while_nobody_looked(site: KubernetesSite, tmp_path: Path) -> None:
    units.test_a_chief_comes_back_after_it_fell_while_nobody_looked(site, tmp_path)


def test_who_had_ended_before_the_line_was_stopped_ended_as_it_did(site: KubernetesSite, tmp_path: Path) -> None:
    watcher = watch(site, tmp_path, Deed(code=3), LASTING)
    watcher.start()
    watcher.until(lambda: worker(1) in watcher.starts())
    site.wait_ended(watcher.run_dir, worker(0))
    watcher.stop()
    watcher.until_ended()
    assert watcher.exits() == {worker(0): Exit(code=3), worker(1): Exit(signal=15)}


@pytest.mark.parametrize("grace_seconds", [0, 60])
def test_who_is_stopped_before_it_runs_ends_once_and_says_so(
    site: KubernetesSite, tmp_path: Path, grace_seconds: float
) -> None:
    watcher = watch(site, tmp_path, *[LASTING] * 5)
    watcher.start()
    watcher.stop(grace_seconds=grace_seconds)
    watcher.until_ended()
    assert sorted(end.replica for end in watcher.ends()) == [worker(index) for index in range(5)]
    assert not any(end.exit.ok for end in watcher.ends())
