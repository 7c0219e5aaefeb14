"""The contract that every engine keeps, on real hosts.

Not here is that a line which was only looked at holds no descriptor: the connections to its hosts are some. Nor is
TensorBoard, which stands on this machine, where the output is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.sites import wait_until
from contract.test_looks import (  # noqa: F401
    test_a_gentle_look_at_stacks_harms_nobody,
    test_everybody_who_goes_on_can_be_asked_for_its_sockets,
    test_everybody_who_goes_on_has_a_pulse_and_nobody_else,
    test_stacks_are_taken_before_an_end_and_each_end_is_told_once,
)
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
    test_a_helper_is_stopped_like_anybody_else,
    test_a_helper_is_taken_up_and_not_started_again,
    test_a_helper_is_told_of_as_a_replica_of_the_first_attempt,
    test_a_helper_that_fails_is_the_cause_and_nobody_starts,
    test_a_run_that_is_killed_while_its_helper_works_ends,
    test_nobody_starts_before_the_helper_is_done,
)
from contract.test_return import (  # noqa: F401
    test_an_end_that_was_told_is_told_the_same_to_whoever_comes_back,
    test_ends_that_nobody_watched_are_told_as_they_were_in_the_order_in_which_they_came,
    test_who_lives_is_taken_up_and_not_started_again,
    test_whoever_comes_back_completes_a_line_that_was_not_all_started,
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
from contract.test_sabotage import (  # noqa: F401
    test_a_network_is_cut_only_where_it_is_the_lines_own,
    test_nobody_is_hurt_who_has_not_begun,
    test_who_is_killed_or_asked_to_leave_is_told_to_have_ended_so,
    test_who_is_paused_goes_on_when_it_is_healed,
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
    test_who_had_ended_before_it_was_stopped_ended_as_it_did,
    test_who_is_stopped_before_its_start_was_told_ends_once,
    test_who_is_stopped_gently_ends_by_term,
    test_who_never_started_and_who_is_not_known_ends_unseen_once,
    test_without_grace_nobody_is_asked,
)
from contract.test_units import (  # noqa: F401
    test_a_chief_comes_back_after_it_fell_while_nobody_looked,
    test_a_worker_rejoins_alone_and_is_seen_in_both_lives,
    test_all_start_again_when_a_ps_falls_under_whatever_supervisor,
    test_who_has_returned_is_taken_up_by_the_next_supervisor,
    test_who_returns_begins_a_life_of_its_own_and_the_others_live_on,
    test_who_was_to_return_and_never_did_ends_unseen,
)
from contract.test_usage import (  # noqa: F401
    test_a_life_that_was_taken_up_is_measured_from_its_start,
    test_everybody_who_runs_is_measured_and_who_has_ended_once_more,
    test_what_is_measured_grows_and_fits_into_the_life,
)
from hosts.site import SshSite
from hosts.world import World


@pytest.fixture
def site(request: pytest.FixtureRequest, world: World, tmp_path: Path) -> Iterator[SshSite]:
    """A place to try the engine; nothing of what was started there is left when the test has ended."""
    if getattr(request, "param", "local") != "local":
        pytest.skip("for another engine")
    place = SshSite(tmp_path, world)
    try:
        yield place
        wait_until(lambda: not place.left())
    finally:
        place.close()
