"""What the contract says of whole runs, with an operator between: a JobSet starts a line again by itself.

Only whole runs: nobody starts or stops one replica of a JobSet, nor says who of them goes first. A TFJob has one
command for all of a role, and the contract's replicas differ; `test_engine.py` tries it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.site import Ground, KubernetesSite
from contract.seat import worker, workers
from contract.sites import LASTING, Deed, wait_until
from contract.test_runs import (  # noqa: F401
    open_office,
    return_to,
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
    test_what_a_line_came_to_while_nobody_looked_is_what_the_run_came_to,
    until_running,
)


@pytest.fixture
def site(ground: Ground, tmp_path: Path) -> Iterator[KubernetesSite]:
    """A place to try the engine; nothing of what was started there is left when the test has ended."""
    place = KubernetesSite(tmp_path, ground, "jobset")
    try:
        yield place
        wait_until(lambda: not place.left())
    finally:
        place.close()


def test_who_fell_first_while_nobody_looked_is_the_cause_whatever_becomes_of_the_others(
    site: KubernetesSite, tmp_path: Path
) -> None:
    office = open_office(site, tmp_path, workers(site, Deed(until=2, code=1), Deed(until=1, code=3), LASTING))
    until_running(office)
    site.open(1)
    site.wait_ended(office.folder.path, worker(1))
    return_to(office)
    state = office.until_over()
    assert state.ending
    assert state.ending.cause
    assert (state.ending.cause.replica, state.ending.cause.exit.code) == (worker(1), 3)
