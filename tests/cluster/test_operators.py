"""What the contract says of whole runs, with an operator between: a JobSet starts a line again by itself.

Only whole runs: nobody starts or stops one replica of a JobSet, nor says who of them goes first. A TFJob has one
command for all of a role, and the contract's replicas differ; `test_engine.py` tries it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.site import Ground, KubernetesSite
from contract.seat import cast, watch, worker, workers
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
from drumline.plan.types import Plan
from drumline.run.state import Phase


@pytest.fixture
def site(ground: Ground, tmp_path: Path) -> Iterator[KubernetesSite]:
    """A place to try the engine; nothing of what was started there is left when the test has ended."""
    place = KubernetesSite(tmp_path, ground, "jobset")
    try:
        yield place
        wait_until(lambda: not place.left())
    finally:
        place.close()


def domains(site: KubernetesSite, plan: Plan, attempt: int) -> set[str]:
    """What the names end with that replicas are told to reach each other by."""
    placement = site.make_engine().place(plan, attempt=attempt)
    return {place.host.partition(".")[2] for place in placement.values()}


def test_a_line_that_starts_again_has_the_names_that_it_had(
    site: KubernetesSite, ground: Ground, tmp_path: Path
) -> None:
    deeds = {"worker.0": (LASTING, Deed(until=1)), "worker.1": (Deed(code=3), Deed(until=1))}
    office = open_office(site, tmp_path, cast(site, "worker*2 crash=1 early=1", deeds))
    office.until(lambda: (office.state.attempt, office.state.phase) == (1, Phase.RUNNING))
    services = {each["metadata"]["name"] for each in ground.kubectl.items("services")}
    assert domains(site, office.plan, 1) == domains(site, office.plan, 0)
    assert domains(site, office.plan, 1) <= services
    site.open(1)
    assert office.until_over().phase is Phase.FINISHED


def test_a_jobset_that_was_stopped_leaves_its_name_to_the_next(site: KubernetesSite, tmp_path: Path) -> None:
    watcher = watch(site, tmp_path, LASTING._replace(says=("attempt $DRUMLINE_ATTEMPT",)))
    for attempt in (0, 1):
        watcher.start(attempt=attempt)
        watcher.until_said(f"attempt {attempt}", attempt=attempt)
        watcher.stop(attempt=attempt)
        watcher.until_ended(attempt=attempt)
    assert (len(watcher.ends(0)), len(watcher.ends(1))) == (1, 1)


def test_who_fell_first_while_nobody_looked_is_the_cause_whatever_becomes_of_the_others(
    site: KubernetesSite, tmp_path: Path
) -> None:
    office = open_office(site, tmp_path, workers(site, Deed(until=2, code=1), Deed(until=1, code=3)))
    until_running(office)
    site.open(1)
    site.wait_ended(office.folder.path, worker(1))
    return_to(office)
    state = office.until_over()
    assert state.ending
    assert state.ending.cause
    assert (state.ending.cause.replica, state.ending.cause.exit.code) == (worker(1), 3)
