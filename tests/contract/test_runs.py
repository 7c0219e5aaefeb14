"""Whole runs on every engine, by a real supervisor with a real journal."""

from __future__ import annotations

import time
from itertools import chain
from pathlib import Path

import pytest

from contract.seat import Office, cast, worker, workers
from contract.sites import LASTING, NEVER, Deed, Site
from drumline.plan.types import Plan, ReplicaId
from drumline.run.event import EngineFailed, Exit, ReplicaExited, ReplicaStarted, StopRequested
from drumline.run.state import Phase
from drumline.runtime.keeper import boot_id
from drumline.store.clock import Moment
from drumline.view.feed import Change, Feed, Lines
from drumline.view.run import run_details

CHIEF, PS = ReplicaId("chief", 0), ReplicaId("ps", 0)
DEAF = Deed(("ready",), until=NEVER, obeys=False)


def open_office(site: Site, folder: Path, plan: Plan) -> Office:
    office = Office(site, folder / "home", plan)
    office.begin()
    return office


def return_to(office: Office, *, asked: bool = False) -> None:
    """Another supervisor takes the run up, as `drumline supervise` and `drumline kill` have it."""
    office.replace()
    if asked:
        office.supervisor.take(StopRequested(at_seconds=office.loop.time()))
    office.begin()


def until_running(office: Office) -> None:
    office.until(lambda: office.state.phase is Phase.RUNNING)


def until_exited(office: Office, replica: ReplicaId) -> None:
    office.until(lambda: replica in {event.replica for event in office.events if isinstance(event, ReplicaExited)})


def test_a_run_finishes(site: Site, tmp_path: Path) -> None:
    office = open_office(site, tmp_path, workers(site, Deed(("first",)), Deed(("second",))))
    state = office.until_over()
    assert state.phase is Phase.FINISHED
    assert [type(event).__name__ for event in office.events][:2] == ["RunAccepted", "AttemptPlaced"]
    assert {each.exit for each in state.replicas.values()} == {Exit(code=0)}
    assert (office.log(worker(0)), office.log(worker(1))) == ("first\n", "second\n")


def test_a_run_is_seen_as_it_was(site: Site, tmp_path: Path) -> None:
    office = open_office(site, tmp_path, workers(site, Deed(("one", "two")), Deed(until=1, code=3)))
    until_exited(office, worker(0))
    site.open(1)
    office.until_over()
    feed = Feed(office.folder)
    items = list(chain.from_iterable(iter(lambda: feed.poll(time.time()), [])))
    said = b"".join(item.data for item in items if isinstance(item, Lines))
    assert said == b"one\ntwo\n"
    assert [item.phase for item in items if isinstance(item, Change) and item.id == "4"][-1] is Phase.FAILED
    details = run_details(office.folder, Moment(time.time(), office.loop.time(), boot_id()))
    assert [(row.id, row.exit) for row in details.replicas] == [(worker(0), Exit(code=0)), (worker(1), Exit(code=3))]
    assert all(row.duration_seconds is not None for row in details.replicas)


def test_a_line_that_falls_starts_again_as_a_whole(site: Site, tmp_path: Path) -> None:
    says = ("attempt $DRUMLINE_ATTEMPT",)
    plan = cast(
        site,
        "worker*2 crash=1 early=1",
        {"worker.0": (LASTING._replace(says=says), Deed(says)), "worker.1": (Deed(says, code=3), Deed(says))},
    )
    office = open_office(site, tmp_path, plan)
    state = office.until_over()
    assert (state.phase, state.attempt) == (Phase.FINISHED, 1)
    assert [(cause.replica, cause.exit) for cause in state.causes] == [(worker(1), Exit(code=3))]
    assert [office.log(worker(1), attempt) for attempt in (0, 1)] == ["attempt 0\n", "attempt 1\n"]


def test_a_line_that_falls_too_often_has_failed(site: Site, tmp_path: Path) -> None:
    plan = cast(
        site,
        "worker*2 crash=1 early=1 backoff_initial_seconds=0",
        {"worker.0": LASTING, "worker.1": Deed(code=3)},
    )
    office = open_office(site, tmp_path, plan)
    state = office.until_over()
    assert (state.phase, state.attempt) == (Phase.FAILED, 1)
    assert state.ending
    assert state.ending.cause
    assert (state.ending.cause.replica, state.ending.cause.exit) == (worker(1), Exit(code=3))
    assert state.replicas[worker(0)].phase is Phase.KILLED


def test_a_run_that_is_killed_ends(site: Site, tmp_path: Path) -> None:
    office = open_office(site, tmp_path, workers(site, LASTING, LASTING))
    until_running(office)
    office.supervisor.take(StopRequested(at_seconds=office.loop.time()))
    state = office.until_over()
    assert state.phase is Phase.KILLED
    assert {(each.phase, each.exit) for each in state.replicas.values()} == {(Phase.KILLED, Exit(signal=15))}


def test_a_run_that_is_killed_by_force_ends_though_nobody_obeys(site: Site, tmp_path: Path) -> None:
    office = open_office(site, tmp_path, workers(site, DEAF, DEAF))
    office.until(lambda: office.log(worker(0)) == office.log(worker(1)) == "ready\n")
    office.supervisor.take(StopRequested(at_seconds=office.loop.time()))
    office.until(lambda: office.state.ending)
    office.supervisor.take(StopRequested(force=True, at_seconds=office.loop.time()))
    state = office.until_over()
    assert {(each.phase, each.exit) for each in state.replicas.values()} == {(Phase.KILLED, Exit(signal=9))}


def test_a_run_that_is_killed_before_it_began_starts_nobody(site: Site, tmp_path: Path) -> None:
    office = Office(site, tmp_path / "home", workers(site, LASTING))
    office.supervisor.take(StopRequested(at_seconds=office.loop.time()))
    office.begin()
    assert office.until_over().phase is Phase.KILLED
    assert not [event for event in office.events if isinstance(event, ReplicaStarted)]


def test_a_line_that_its_engine_refuses_has_failed(site: Site, tmp_path: Path) -> None:
    plan = workers(site, LASTING, LASTING)
    first, second = plan.replicas
    plan = plan.replace(replicas=(first, second.replace(argv=site.refused)))
    office = open_office(site, tmp_path, plan)
    state = office.until_over()
    assert state.phase is Phase.FAILED
    (failed,) = [event for event in office.events if isinstance(event, EngineFailed)]
    assert "worker.1" in failed.message


def test_ps_leave_after_the_workers(site: Site, tmp_path: Path) -> None:
    plan = cast(site, "chief worker ps grace=0.2", {"chief.0": Deed(until=1), "worker.0": DEAF, "ps.0": LASTING})
    office = open_office(site, tmp_path, plan)
    until_running(office)
    office.until(lambda: office.log() == "ready\n")
    site.open(1)
    state = office.until_over()
    assert state.phase is Phase.FINISHED
    ends = [event for event in office.events if isinstance(event, ReplicaExited)]
    assert [end.replica for end in ends] == [CHIEF, worker(0), PS]
    assert [end.exit for end in ends] == [Exit(code=0), Exit(signal=9), Exit(signal=15)]
    assert ends[0].at_seconds < ends[1].at_seconds < ends[2].at_seconds


# --- another supervisor -----------------------------------------------------------------------------------------------


def test_a_run_goes_on_under_another_supervisor(site: Site, tmp_path: Path) -> None:
    office = open_office(site, tmp_path, workers(site, *[Deed(("here",), until=1)] * 2))
    until_running(office)
    for _ in range(2):
        return_to(office)
    site.open(1)
    state = office.until_over()
    assert (state.phase, state.attempt) == (Phase.FINISHED, 0)
    office.until(lambda: office.log(worker(0)) == office.log(worker(1)) == "here\n")


def test_a_supervisor_that_left_before_anybody_was_told_of_is_replaced(site: Site, tmp_path: Path) -> None:
    office = open_office(site, tmp_path, workers(site, *[Deed(("here",), until=1)] * 2))
    return_to(office)  # the first has written down no start
    until_running(office)
    site.open(1)
    assert office.until_over().phase is Phase.FINISHED
    assert (office.log(worker(0)), office.log(worker(1))) == ("here\n", "here\n")


@pytest.mark.parametrize(("code", "phase"), [(0, Phase.FINISHED), (3, Phase.FAILED)])
def test_what_a_line_came_to_while_nobody_looked_is_what_the_run_came_to(
    site: Site, tmp_path: Path, code: int, phase: Phase
) -> None:
    office = open_office(site, tmp_path, workers(site, Deed(until=2), Deed(until=1, code=code)))
    until_running(office)
    for gate, index in ((1, 1), (2, 0)):
        site.open(gate)
        site.wait_ended(office.folder.path, worker(index))
    return_to(office)
    state = office.until_over()
    assert state.phase is phase
    ends = [event.replica for event in office.events if isinstance(event, ReplicaExited)]
    assert ends == [worker(1), worker(0)]


def test_who_fell_first_while_nobody_looked_is_the_cause(site: Site, tmp_path: Path) -> None:
    office = open_office(site, tmp_path, workers(site, Deed(until=2, code=1), Deed(until=1, code=3), LASTING))
    until_running(office)
    for gate, index in ((1, 1), (2, 0)):
        site.open(gate)
        site.wait_ended(office.folder.path, worker(index))
    return_to(office)
    state = office.until_over()
    assert state.ending
    assert state.ending.cause
    assert (state.ending.cause.replica, state.ending.cause.exit.code) == (worker(1), 3)
    assert [(each.phase, each.reason) for each in state.replicas.values()] == [
        (Phase.FAILED, "Consequence"),
        (Phase.FAILED, "Exited"),
        (Phase.KILLED, "PeerFailed"),
    ]


def test_a_run_that_is_killed_after_everybody_was_done_was_done(site: Site, tmp_path: Path) -> None:
    office = open_office(site, tmp_path, workers(site, Deed(until=1), Deed(until=1)))
    until_running(office)
    site.open(1)
    for index in (0, 1):
        site.wait_ended(office.folder.path, worker(index))
    return_to(office, asked=True)
    assert office.until_over().phase is Phase.FINISHED


def test_a_run_that_is_killed_without_its_supervisor_ends(site: Site, tmp_path: Path) -> None:
    office = open_office(site, tmp_path, workers(site, Deed(until=1), LASTING))
    until_running(office)
    site.open(1)
    site.wait_ended(office.folder.path, worker(0))
    return_to(office, asked=True)
    state = office.until_over()
    assert state.phase is Phase.KILLED
    assert [each.exit for each in state.replicas.values()] == [Exit(code=0), Exit(signal=15)]


def test_a_supervisor_that_left_while_it_stopped_the_line_is_replaced(site: Site, tmp_path: Path) -> None:
    plan = cast(
        site,
        "worker*2 grace=0.3 early=1 crash=1",
        {"worker.0": (DEAF, Deed()), "worker.1": (Deed(until=1, code=3), Deed())},
    )
    office = open_office(site, tmp_path, plan)
    office.until(lambda: office.log() == "ready\n")
    until_running(office)
    site.open(1)
    until_exited(office, worker(1))
    return_to(office)
    state = office.until_over()
    assert (state.phase, state.attempt) == (Phase.FINISHED, 1)
    ends = [event for event in office.events if isinstance(event, ReplicaExited) and event.attempt == 0]
    assert [(end.replica, end.exit) for end in ends] == [(worker(1), Exit(code=3)), (worker(0), Exit(signal=9))]
