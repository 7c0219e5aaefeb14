"""What every engine promises of those who return alone, and whole runs in which some do."""

from __future__ import annotations

import time
from itertools import chain
from pathlib import Path

import pytest

from contract.seat import Office, Watcher, cast, watch, worker
from contract.sites import LASTING, Deed, Site
from contract.test_runs import CHIEF, PS, open_office, return_to, until_running
from drumline.plan.types import ReplicaId
from drumline.run.event import Exit, FirstStepTaken, ReplicaExited, ReplicaStarted
from drumline.run.state import Phase, ReplicaState
from drumline.runtime.keeper import boot_id
from drumline.store.clock import Moment
from drumline.view.feed import Feed, Lines
from drumline.view.run import run_details

AGAIN = {worker(1): 1}
SECOND = Deed(("life $DRUMLINE_INCARNATION of attempt $DRUMLINE_ATTEMPT",), until=LASTING.until)


def begin(site: Site, folder: Path) -> Watcher:
    """Two workers, one of which has fallen and is ordered to return."""
    plan = cast(site, "worker*2", {"worker.0": LASTING, "worker.1": (Deed(("first",), code=3), SECOND)})
    watcher = Watcher(site, folder / "run", plan)
    first = watcher.launches()
    watcher.loop.wait(watcher.engine.start(first))
    watcher.until(lambda: watcher.ends() and worker(0) in watcher.starts())  # each on a host of its own, perhaps
    for _ in range(2):  # an order may be given twice
        watcher.start_again(first, AGAIN)
    watcher.until(lambda: watcher.log(worker(1), incarnation=1).endswith("\n"))
    return watcher


def test_who_returns_begins_a_life_of_its_own_and_the_others_live_on(site: Site, tmp_path: Path) -> None:
    watcher = begin(site, tmp_path)
    watcher.let_somebody_pass()
    started = [(each.replica, each.incarnation) for each in watcher.told if isinstance(each, ReplicaStarted)]
    assert sorted(started[:3]) == [(worker(0), 0), (worker(1), 0), (worker(1), 1)]
    assert (watcher.log(worker(1)), watcher.log(worker(1), incarnation=1)) == ("first\n", "life 1 of attempt 0\n")
    watcher.loop.wait(watcher.engine.stop([worker(0), worker(1)], 0, grace_seconds=60, incarnations=AGAIN))
    watcher.until(lambda: len(watcher.ends()) == 3)
    ends = [(end.replica, end.incarnation, end.exit) for end in watcher.ends()]
    assert sorted(ends) == [
        (worker(0), 0, Exit(signal=15)),
        (worker(1), 0, Exit(code=3)),
        (worker(1), 1, Exit(signal=15)),
    ]


@pytest.mark.parametrize("verb", ["start", "stop"])
def test_who_has_returned_is_taken_up_by_the_next_supervisor(site: Site, tmp_path: Path, verb: str) -> None:
    first = begin(site, tmp_path)
    second = first.again(site)
    if verb == "start":
        second.start_again(second.launches(), AGAIN)
        second.until(lambda: len(second.starts()) == 2)
    second.loop.wait(second.engine.stop([worker(0), worker(1)], 0, grace_seconds=60, incarnations=AGAIN))
    second.until(lambda: len(second.ends()) == 2)
    assert {(end.replica, end.incarnation, end.exit) for end in second.ends()} == {
        (worker(0), 0, Exit(signal=15)),
        (worker(1), 1, Exit(signal=15)),
    }


def test_who_was_to_return_and_never_did_ends_unseen(site: Site, tmp_path: Path) -> None:
    watcher = watch(site, tmp_path, LASTING, Deed(code=3))
    watcher.start()
    watcher.until(watcher.ends)
    watcher.loop.wait(watcher.engine.stop([worker(0), worker(1)], 0, grace_seconds=60, incarnations=AGAIN))
    watcher.until(lambda: len(watcher.ends()) == 3)
    assert (worker(1), 1, Exit(message="it was never started")) in [
        (end.replica, end.incarnation, end.exit) for end in watcher.ends()
    ]


# --- whole runs, of the framework whose replicas live apart -----------------------------------------------------------


def step(office: Office) -> None:
    """Let the line have taken its first step."""
    until_running(office)
    office.supervisor.take(FirstStepTaken(office.state.attempt, CHIEF, 1, office.loop.time()))
    office.until(lambda: office.state.stepped)


def _is_up_again(state: ReplicaState) -> bool:
    return (state.phase, state.incarnation) == (Phase.RUNNING, 1)


def until_returned(office: Office, *replicas: ReplicaId) -> None:
    office.until(lambda: all(_is_up_again(office.state.replicas[each]) for each in replicas))


def test_a_worker_rejoins_alone_and_is_seen_in_both_lives(site: Site, tmp_path: Path) -> None:
    deeds: dict[str, Deed | tuple[Deed, ...]] = {
        "chief.0": Deed(until=3),
        "worker.0": LASTING,
        "worker.1": (Deed(("one",), until=1, signal=9), Deed(("two",), until=LASTING.until)),
        "ps.0": LASTING,
    }
    office = open_office(site, tmp_path, cast(site, "chief worker*2 ps crash=1", deeds))
    office.until(lambda: office.log(worker(1)) == "one\n")
    step(office)
    site.open(1)
    until_returned(office, worker(1))
    office.until(lambda: office.log(worker(1), incarnation=1) == "two\n")
    return_to(office)
    office.until(lambda: office.state.phase is Phase.RUNNING)
    details = run_details(office.folder, Moment(time.time(), office.loop.time(), boot_id()))
    row = next(row for row in details.replicas if row.id == worker(1))
    assert (row.phase, row.incarnation, row.exit) == (Phase.RUNNING, 1, None)
    site.open(3)
    state = office.until_over()
    assert (state.phase, state.attempt) == (Phase.FINISHED, 0)
    feed = Feed(office.folder)
    items = list(chain.from_iterable(iter(lambda: feed.poll(time.time()), [])))
    said = [item.data.decode() for item in items if isinstance(item, Lines)]
    assert said == ["one\n", "worker.1 rejoins (restart 1 of 1): killed by signal 9 (KILL)\n", "two\n"]
    changes = [item for item in items if not isinstance(item, Lines) and item.id == "4.worker.1"]
    # A cluster may say, besides, for what a pod waits.
    own = [each.phase for each in changes if not (each.phase is Phase.STARTING and each.message)]
    assert own == [Phase.STARTING, Phase.RUNNING, Phase.RESTARTING, Phase.STARTING, Phase.RUNNING, Phase.FINISHED]


def test_all_start_again_when_a_ps_falls_under_whatever_supervisor(site: Site, tmp_path: Path) -> None:
    deeds: dict[str, Deed | tuple[Deed, ...]] = {
        "chief.0": (LASTING, Deed(until=3)),
        "worker.0": LASTING,
        "ps.0": (Deed(until=1, code=1), LASTING),
        "ps.1": LASTING,
    }
    office = open_office(site, tmp_path, cast(site, "chief worker ps*2 crash=1", deeds))
    step(office)
    site.open(1)
    site.wait_ended(office.folder.path, PS)
    office.until(lambda: office.state.revivals)
    return_to(office)  # in the midst of it
    until_returned(office, CHIEF, worker(0), PS, ReplicaId("ps", 1))
    site.open(3)
    state = office.until_over()
    assert (state.phase, state.attempt) == (Phase.FINISHED, 0)
    lives = {(event.replica, event.incarnation) for event in office.events if isinstance(event, ReplicaExited)}
    twice = (CHIEF, worker(0), PS, ReplicaId("ps", 1))
    assert lives == {(each, life) for each in twice for life in (0, 1)}


def test_a_chief_comes_back_after_it_fell_while_nobody_looked(site: Site, tmp_path: Path) -> None:
    deeds: dict[str, Deed | tuple[Deed, ...]] = {
        "chief.0": (Deed(until=1, code=1), Deed()),
        "worker.0": LASTING,
        "ps.0": LASTING,
    }
    office = open_office(site, tmp_path, cast(site, "chief worker ps crash=1", deeds))
    step(office)
    site.open(1)
    site.wait_ended(office.folder.path, CHIEF)
    return_to(office)
    state = office.until_over()
    assert (state.phase, state.attempt, state.restarts) == (Phase.FINISHED, 0, {"crash": 1})
