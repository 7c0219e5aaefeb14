"""Reports of a host are accepted only about replicas that it was ordered to start."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from drumline.engine.ssh.helpers import Helpers
from drumline.engine.ssh.inbox import Inbox, Received
from drumline.engine.ssh.receiver import Receiver, ReplicaEnded
from drumline.engine.ssh.replicas import HostReplicas
from drumline.engine.ssh.reports import EventReport, HostEvent, LogPiece, Report, SmallFile
from drumline.plan.types import ReplicaId
from drumline.run.event import (
    AttemptDelayed,
    EngineFailed,
    EngineWarned,
    Event,
    Exit,
    ReplicaExited,
    ReplicaStarted,
    RoomFound,
)
from drumline.run.incarnation import Incarnation
from drumline.run.usage import Usage
from scaffold.loops import SimulatedTimeLoop

OURS = Incarnation(ReplicaId("worker", 0), 2)  # on h1
THEIRS = Incarnation(ReplicaId("worker", 1), 2)  # on h2
HELPER = Incarnation(ReplicaId("prepare", 0), 0)  # on h2
NOW = 1000.0


class Scenario:
    """A run with a worker on each of two hosts, and a helper on the second; h3 has no part in this attempt."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = SimulatedTimeLoop(NOW)
        self.reported: list[Event] = []
        self.warnings: list[str] = []
        loop = self.clock
        self.replicas = HostReplicas(folder, loop, self.reported.append)
        helpers = Helpers(folder, loop, self.reported.append)
        connection = SimpleNamespace(skew_seconds=0.0)
        self.inbox: Inbox = asyncio.Queue()
        self.receiver = Receiver(
            cast("Any", dict.fromkeys(("h1", "h2", "h3"), connection)),
            self.replicas,
            helpers,
            cast("Any", SimpleNamespace(attempt=2, takes_part=lambda host: host != "h3")),
            self.inbox,
            loop,
            self._report,
        )
        for kept in self.replicas.ask([(OURS, "h1"), (THEIRS, "h2")]):
            self.replicas.order(kept)
        helpers.begin(HELPER, ("h2",))
        helpers.go(HELPER, "h2", "plan")

    def _report(self, event: Event) -> None:
        is_warning = isinstance(event, EngineWarned) and event.message.split()[0] in ("h1", "h2", "h3")
        if is_warning:
            self.warnings.append(event.message)  # type: ignore[union-attr]
        else:
            self.reported.append(event)

    def receive_report(self, host: str, report: Report) -> None:
        match self.receiver.receive(host, report):
            case ReplicaEnded() as ended:
                self.replicas.end(ended.replica, ended.exit, ended.at_seconds, ended.usage)
            case RoomFound() as event:
                self.reported.append(event)

    def pass_time(self, seconds: float) -> None:
        self.clock.pass_time(seconds)
        while not self.inbox.empty():
            message = self.inbox.get_nowait()
            assert isinstance(message, Received)
            self.receive_report(message.host, message.report)

    def receive_event(self, host: str, event: HostEvent, usage: Usage | None = None) -> None:
        self.receive_report(host, EventReport(event, usage))

    def files(self) -> set[str]:
        found = (path for path in self.folder.rglob("*") if path.is_file())
        return {str(path.relative_to(self.folder)) for path in found if path.name != "keeper"}


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    return Scenario(tmp_path)


def used(incarnation: Incarnation) -> Usage:
    return Usage(
        incarnation.replica,
        incarnation.attempt,
        incarnation.incarnation,
        at_seconds=2.0,
        started_seconds=1.0,
        cpu_seconds=1.0,
    )


def test_reports_of_a_host_about_its_own_replicas_are_accepted(scenario: Scenario) -> None:
    scenario.receive_report("h1", LogPiece(OURS, 0, b"hello\n"))
    scenario.receive_report("h1", SmallFile(OURS, "report", b"{}"))
    scenario.receive_event("h1", ReplicaStarted(OURS.replica, OURS.attempt, OURS.incarnation, 4711))
    scenario.receive_event(
        "h1", ReplicaExited(OURS.replica, OURS.attempt, OURS.incarnation, Exit(3), 900.0), used(OURS)
    )
    assert scenario.reported == [
        ReplicaStarted(OURS.replica, OURS.attempt, OURS.incarnation, 4711, note="on h1"),
        ReplicaExited(OURS.replica, OURS.attempt, OURS.incarnation, Exit(3), 900.0),
    ]
    assert (scenario.folder / OURS.folder / "log").read_bytes() == b"hello\n"
    assert [*scenario.replicas.used()] == [used(OURS)]
    assert not scenario.warnings


@pytest.mark.parametrize("incarnation", [THEIRS, HELPER, OURS.replace(attempt=3), OURS.replace(incarnation=1)], ids=str)
def test_reports_of_a_host_about_other_replicas_are_dropped_with_one_warning(
    scenario: Scenario, incarnation: Incarnation
) -> None:
    before = scenario.files()
    for _ in range(3):
        scenario.receive_report("h1", LogPiece(incarnation, 0, b"a forged line\n"))
        scenario.receive_report("h1", SmallFile(incarnation, "error", b"a forged cause"))
        scenario.receive_event(
            "h1", ReplicaStarted(incarnation.replica, incarnation.attempt, incarnation.incarnation, 4711)
        )
        scenario.receive_event(
            "h1",
            ReplicaExited(
                incarnation.replica,
                incarnation.attempt,
                incarnation.incarnation,
                Exit(1, message="a forged cause"),
                1.0,
            ),
        )
    assert not scenario.reported
    assert scenario.files() == before
    assert scenario.warnings == [
        "h1 reports replicas or attempts that it was not ordered to start; these reports are ignored"
    ]


def test_usage_of_another_replica_in_the_report_of_a_host_is_dropped(scenario: Scenario) -> None:
    scenario.receive_event(
        "h1", ReplicaExited(OURS.replica, OURS.attempt, OURS.incarnation, Exit(0), 900.0), used(THEIRS)
    )
    assert not [*scenario.replicas.used()]
    assert len(scenario.warnings) == 1


@pytest.mark.parametrize("kind", [EngineFailed, EngineWarned, AttemptDelayed])
def test_events_of_a_host_that_does_not_take_part_in_the_attempt_are_dropped(
    scenario: Scenario, kind: Callable[[int, str], HostEvent]
) -> None:
    scenario.receive_event("h3", kind(2, "forged"))
    scenario.receive_event("h1", kind(7, "forged"))
    scenario.receive_event("h1", kind(1, "late"))
    assert not scenario.reported
    assert [warning.partition(" ")[0] for warning in scenario.warnings] == ["h3", "h1"]
    scenario.receive_event("h1", kind(2, "true"))
    assert scenario.reported == [kind(2, "h1: true")]


def test_only_a_host_with_a_helper_may_report_events_of_attempt_0(scenario: Scenario) -> None:
    scenario.receive_event("h2", EngineWarned(0, "slow"))
    scenario.receive_event("h1", EngineWarned(0, "forged"))
    assert scenario.reported == [EngineWarned(0, "h2: slow")]


def test_the_number_of_events_that_a_host_adds_to_the_journal_is_limited(scenario: Scenario) -> None:
    for number in range(10_000):
        scenario.receive_event("h1", EngineWarned(2, f"warning {number}"))
    assert len(scenario.reported) == 100
    assert scenario.warnings == ["h1 reports more events than are recorded; some of them are left out"]
    scenario.pass_time(60)
    scenario.receive_event("h1", EngineWarned(2, "later"))
    scenario.receive_event("h2", EngineWarned(2, "another host"))
    assert len(scenario.reported) == 102


def test_reports_of_free_resources_above_the_quota_are_delayed_and_not_dropped(scenario: Scenario) -> None:
    for _ in range(1000):
        scenario.receive_event("h1", RoomFound(2))
    assert scenario.reported == [RoomFound(2)] * 100
    scenario.pass_time(60)
    assert scenario.reported == [RoomFound(2)] * 101


@pytest.mark.parametrize(("sent", "reported"), [(9e10, NOW), (900.0, 900.0)])
def test_the_time_of_an_end_is_never_in_the_future(scenario: Scenario, sent: float, reported: float) -> None:
    scenario.receive_event("h1", ReplicaExited(OURS.replica, OURS.attempt, OURS.incarnation, Exit(1), sent))
    assert scenario.reported == [ReplicaExited(OURS.replica, OURS.attempt, OURS.incarnation, Exit(1), reported)]


@pytest.mark.parametrize("at", [1, 1 << 40, (1 << 63) - 1])
def test_a_piece_that_leaves_a_gap_in_a_log_is_dropped(scenario: Scenario, at: int) -> None:
    scenario.receive_report("h1", LogPiece(OURS, at, b"x"))
    scenario.receive_report("h2", LogPiece(HELPER, at, b"x"))
    assert not [name for name in scenario.files() if "log" in name and (scenario.folder / name).stat().st_size]
