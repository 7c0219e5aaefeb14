"""What every engine promises of helpers, which make data before the line starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from contract.seat import FIRST, Office, Watcher, able, cast
from contract.sites import LASTING, Deed, Site
from drumline.engine.abilities import Preparing
from drumline.plan.types import Plan, ReplicaId
from drumline.run.event import Exit, ReplicaExited, ReplicaStarted, StopRequested
from drumline.run.state import Phase

HELPER = ReplicaId("prepare", 0)


def helped(site: Site, deed: Deed) -> Plan:
    return cast(site, "prepare worker*2", {"prepare": deed, "worker.0": Deed(), "worker.1": Deed()})


@pytest.mark.parametrize("code", [0, 3])
def test_a_helper_is_told_of_as_a_replica_of_the_first_attempt(site: Site, tmp_path: Path, code: int) -> None:
    watcher = Watcher(site, tmp_path / "run", helped(site, Deed(("making",), until=1, code=code)))
    watcher.loop.wait(able(watcher.engine, Preparing).prepare(watcher.plan, HELPER))
    watcher.until_said("making", replica=HELPER)
    watcher.loop.wait(able(watcher.engine, Preparing).prepare(watcher.plan, HELPER))
    site.open(1)
    watcher.until(watcher.ends)
    watcher.let_somebody_pass()
    assert watcher.starts() == [HELPER]
    assert [(end.replica, end.exit) for end in watcher.ends()] == [(HELPER, Exit(code=code))]
    assert watcher.log(HELPER).count("making") == 1


def test_a_helper_is_stopped_like_anybody_else(site: Site, tmp_path: Path) -> None:
    watcher = Watcher(site, tmp_path / "run", helped(site, LASTING._replace(says=("making",))))
    watcher.loop.wait(able(watcher.engine, Preparing).prepare(watcher.plan, HELPER))
    watcher.until_said("making", replica=HELPER)
    watcher.stop(HELPER)
    watcher.until(watcher.ends)
    watcher.let_somebody_pass()
    assert [(end.replica, end.exit) for end in watcher.ends()] == [(HELPER, Exit(signal=15))]


def test_a_helper_is_taken_up_and_not_started_again(site: Site, tmp_path: Path) -> None:
    first = Watcher(site, tmp_path / "run", helped(site, Deed(("making",), until=1)))
    first.loop.wait(able(first.engine, Preparing).prepare(first.plan, HELPER))
    first.until_said("making", replica=HELPER)
    second = first.again(site)
    second.loop.wait(able(second.engine, Preparing).prepare(second.plan, HELPER))
    second.until(second.starts)
    site.open(1)
    second.until(second.ends)
    assert second.exits() == {HELPER: Exit(code=0)}
    assert second.log(HELPER).count("making") == 1


def test_nobody_starts_before_the_helper_is_done(site: Site, tmp_path: Path) -> None:
    office = Office(site, tmp_path / "home", helped(site, Deed(("making",), until=1)))
    office.begin()
    office.until(lambda: "making" in office.log(HELPER))
    office.replace()
    office.begin()
    assert office.state.phase is Phase.BUILDING
    site.open(1)
    assert office.until_over().phase is Phase.FINISHED
    told = [each.replica for each in office.events if isinstance(each, ReplicaStarted | ReplicaExited)]
    assert told.index(FIRST) > max(number for number, name in enumerate(told) if name == HELPER)


def test_a_helper_that_fails_is_the_cause_and_nobody_starts(site: Site, tmp_path: Path) -> None:
    office = Office(site, tmp_path / "home", helped(site, Deed(code=3)))
    office.begin()
    state = office.until_over()
    assert state.phase is Phase.FAILED
    assert state.ending
    assert state.ending.cause
    assert (state.ending.cause.replica, state.ending.cause.exit) == (HELPER, Exit(code=3))
    assert {each.replica for each in office.events if isinstance(each, ReplicaStarted)} == {HELPER}


def test_a_run_that_is_killed_while_its_helper_works_ends(site: Site, tmp_path: Path) -> None:
    office = Office(site, tmp_path / "home", helped(site, LASTING._replace(says=("making",))))
    office.begin()
    office.until(lambda: "making" in office.log(HELPER))
    office.supervisor.take(StopRequested(at_seconds=office.loop.time()))
    state = office.until_over()
    assert state.phase is Phase.KILLED
    assert state.helpers[HELPER].exit == Exit(signal=15)
