"""What every engine promises of an environment: it is there before the line, and who finds it there starts nobody."""

from __future__ import annotations

from pathlib import Path

from contract.seat import FIRST, Office, Watcher, able, cast
from contract.sites import Deed, Site
from drumline.engine.abilities import Preparing
from drumline.plan.types import Environment, Plan, ReplicaId
from drumline.run.event import ReplicaExited, ReplicaStarted
from drumline.run.state import Phase

HELPER = ReplicaId("build", 0)
ENVIRONMENT = Environment(("numpy",))


def equipped(site: Site, text: str = "build worker", **deeds: Deed) -> Plan:
    site.have_environment(ENVIRONMENT)
    plan = cast(site, text, {"worker.0": Deed(("working",)), **deeds})
    assert plan.environment == ENVIRONMENT
    return plan


def test_of_an_environment_that_is_there_only_the_end_is_told(site: Site, tmp_path: Path) -> None:
    watcher = Watcher(site, tmp_path / "run", equipped(site))
    watcher.loop.wait(able(watcher.engine, Preparing).prepare(watcher.plan, HELPER))
    watcher.until(watcher.ends)
    assert watcher.starts() == []
    (end,) = watcher.ends()
    assert (end.replica, end.attempt, end.exit.ok) == (HELPER, 0, True)
    assert end.exit.message


def test_it_is_told_again_to_a_supervisor_that_comes_back(site: Site, tmp_path: Path) -> None:
    first = Watcher(site, tmp_path / "run", equipped(site))
    first.loop.wait(able(first.engine, Preparing).prepare(first.plan, HELPER))
    second = first.again(site)
    second.loop.wait(able(second.engine, Preparing).prepare(second.plan, HELPER))
    second.until(second.ends)
    assert second.exits()[HELPER].ok


def test_a_run_builds_first_makes_its_data_then_and_trains_last(site: Site, tmp_path: Path) -> None:
    office = Office(site, tmp_path / "home", equipped(site, "build prepare worker", prepare=Deed(("making",), until=1)))
    office.begin()
    office.until(lambda: "making" in office.log(ReplicaId("prepare", 0)))
    office.replace()
    office.begin()
    assert office.state.phase is Phase.BUILDING
    site.open(1)
    assert office.until_over().phase is Phase.FINISHED
    told = [str(each.replica) for each in office.events if isinstance(each, ReplicaExited)]
    assert list(dict.fromkeys(told)) == ["build", "prepare", "worker.0"]
    assert HELPER not in {each.replica for each in office.events if isinstance(each, ReplicaStarted)}
    assert "working" in office.log(FIRST)
