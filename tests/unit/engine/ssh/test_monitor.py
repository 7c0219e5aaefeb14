"""A host counts as lost after a time of silence in which this machine was not suspended."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from drumline.engine.agent.errors import MalformedError
from drumline.engine.ssh.connection import HostConnection
from drumline.engine.ssh.helpers import Helpers
from drumline.engine.ssh.monitor import CHECK_SECONDS, HostLost, HostMonitor, HostSilent
from drumline.engine.ssh.plan_options import Host, Hosts
from drumline.engine.ssh.replicas import HostReplicas
from drumline.plan.types import ReplicaId
from drumline.run.event import Event, Exit
from drumline.run.incarnation import Incarnation
from scaffold.loops import SimulatedTimeLoop

LOST_SECONDS = 60.0


class Watched:
    """A run with a replica on a host that has just stopped answering, and the monitor that checks the host."""

    def __init__(self, folder: Path) -> None:
        self.reported: list[Event] = []
        self.moment = 1000.0
        self.connection = SimpleNamespace(is_up=False, is_broken=False, answered_at=self.moment, trouble=None)
        clock = SimulatedTimeLoop()
        self.replicas = HostReplicas(folder, clock, self.reported.append)
        helpers = Helpers(folder, clock, self.reported.append)
        hosts = Hosts((Host("h1"),), "unique", "tester", None, lost_seconds=LOST_SECONDS)
        connections = {"h1": cast("HostConnection", self.connection)}
        self.monitor = HostMonitor(folder, hosts, connections, self.replicas, helpers, self.moment)
        self.replicas.ask([(Incarnation(ReplicaId("worker", 0), 0), "h1")])
        self.lost: list[HostLost] = []
        self.silent: list[HostSilent] = []

    def sleep(self, seconds: float) -> None:
        """Let time pass without checks, as while this machine is suspended, and then check the host once."""
        self.moment += seconds
        for found in self.monitor.check(self.moment):
            (self.lost if isinstance(found, HostLost) else self.silent).append(found)  # type: ignore[arg-type]

    def pass_time(self, seconds: float) -> None:
        for _ in range(round(seconds / CHECK_SECONDS)):
            self.sleep(CHECK_SECONDS)

    def is_lost(self) -> bool:
        return bool(self.lost)


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


def test_a_host_that_is_silent_for_long_is_lost(watched: Watched) -> None:
    watched.pass_time(LOST_SECONDS - 1)
    assert not watched.is_lost()
    watched.pass_time(2)
    assert watched.is_lost()
    assert watched.monitor.unverified == {"h1"}


def test_time_in_which_this_machine_was_suspended_does_not_count(watched: Watched) -> None:
    watched.sleep(10 * LOST_SECONDS)
    assert not watched.is_lost()
    watched.pass_time(LOST_SECONDS - 1)
    assert not watched.is_lost()
    watched.pass_time(2)
    assert watched.is_lost()


def test_a_host_that_answers_in_time_is_not_lost(watched: Watched) -> None:
    watched.pass_time(LOST_SECONDS - 1)
    watched.connection.answered_at = watched.moment
    watched.pass_time(LOST_SECONDS - 1)
    assert not watched.is_lost()


def test_a_host_that_broke_the_protocol_is_lost_at_once(watched: Watched) -> None:
    watched.connection.is_broken, watched.connection.trouble = True, MalformedError("h1", "nonsense")
    watched.pass_time(1)
    assert watched.is_lost()
    assert "h1 has sent something that drumline does not send: nonsense" in watched.lost[0].exit.message
    assert watched.monitor.unverified == {"h1"}


def test_a_host_that_answers_but_does_not_report_the_end_of_a_killed_replica_is_lost(watched: Watched) -> None:
    watched.connection.is_up = True
    (kept,) = watched.replicas
    kept.kill_at = watched.moment
    watched.pass_time(LOST_SECONDS + 59)  # a connected host has one minute more to report the end
    assert not watched.is_lost()
    watched.pass_time(2)
    assert watched.is_lost()
    assert watched.monitor.unverified == {"h1"}


def test_there_is_one_warning_about_a_silent_host_and_one_message_when_it_answers(watched: Watched) -> None:
    watched.pass_time(LOST_SECONDS / 2)
    (silent,) = watched.silent
    assert silent.warning.startswith("h1 has not answered for 5.0s; its replicas continue")
    watched.connection.is_up = True
    assert watched.monitor.note_connected("h1") == "h1 answers again"
    assert watched.monitor.note_connected("h1") == ""


def test_a_host_without_replicas_is_not_checked(watched: Watched) -> None:
    (replica,) = watched.replicas
    watched.replicas.end(replica, Exit(0), 1.0)
    watched.pass_time(2 * LOST_SECONDS)
    assert not watched.silent
    assert not watched.lost
    assert not watched.monitor.lost
