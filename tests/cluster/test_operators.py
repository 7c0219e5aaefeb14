"""What the contract says of whole runs, with an operator between: a JobSet starts a line again by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.site import Ground, KubernetesSite
from contract.seat import cast, watch, worker, workers
from contract.sites import LASTING, Deed, Site
from contract.suite import Exceptions, contract_tests, excuse, occupy
from contract.test_runs import open_office, return_to, until_running
from drumline.plan.types import Plan
from drumline.run.state import Phase

_WHOLE_RUNS = (
    "a JobSet's replicas are started and stopped together, in no order; the cluster is that of test_contract.py"
)
EXCEPTIONS: Exceptions = {
    **dict.fromkeys(("test_build", "test_looks", "test_place", "test_prepare", "test_return"), _WHOLE_RUNS),
    **dict.fromkeys(
        ("test_sabotage", "test_serve", "test_start", "test_stop", "test_units", "test_usage"), _WHOLE_RUNS
    ),
    "test_ps_leave_after_the_workers": _WHOLE_RUNS,
    "test_who_fell_first_while_nobody_looked_is_the_cause": "the last test below says the same of two replicas",
}

globals().update(contract_tests())


@pytest.fixture
def site(request: pytest.FixtureRequest, ground: Ground, tmp_path: Path) -> Iterator[Site]:
    """A place to try the engine."""
    excuse(request, EXCEPTIONS)
    place = KubernetesSite(tmp_path, ground, "jobset")
    yield from occupy(place, place.describe)


def domains(site: KubernetesSite, plan: Plan, attempt: int) -> set[str]:
    """What the names end with that replicas are told to reach each other by."""
    placement = asyncio.run(site.make_engine().place(plan, attempt=attempt))
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
