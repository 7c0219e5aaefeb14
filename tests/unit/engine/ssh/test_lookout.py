"""When a host counts as lost: by its silence, as long as there was somebody to hear it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from drumline.engine.agent.errors import MalformedError
from drumline.engine.incarnation import Incarnation
from drumline.engine.ssh.helpers import Helpers
from drumline.engine.ssh.link import Link
from drumline.engine.ssh.lookout import Lookout
from drumline.engine.ssh.planned import Host, Hosts
from drumline.engine.ssh.replicas import HostReplicas
from drumline.plan.types import ReplicaId
from drumline.run.event import Event, ReplicaExited
from scaffold.loops import SimulatedTimeLoop

LOST_SECONDS = 60.0


class Clock(SimulatedTimeLoop):
    """A clock that may also pass while this machine is suspended."""

    def sleep(self, seconds: float) -> None:
        """Let so much time pass in which nothing is called."""
        self._now += seconds
        self.pass_time(0.0)


class Place:
    """A run with somebody on a host that has just fallen silent."""

    def __init__(self, folder: Path) -> None:
        self.told: list[Event] = []
        self.clock = Clock()
        self.link = SimpleNamespace(is_up=False, is_broken=False, answered_at=self.clock.time(), trouble=None)
        self.lives = lives = HostReplicas(folder, self.clock, self.told.append)
        helpers = Helpers(folder, lambda _: None, self.clock, self.told.append)
        hosts = Hosts((Host("h1"),), "unique", "tester", None, lost_seconds=LOST_SECONDS)
        links = {"h1": cast("Link", self.link)}
        self.lookout = Lookout(folder, hosts, links, (lives, helpers), self.clock, lambda _: None)
        lives.ask([(Incarnation(ReplicaId("worker", 0), 0), "h1")])
        self.lookout.look()

    def is_lost(self) -> bool:
        return any(isinstance(event, ReplicaExited) for event in self.told)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_host_that_is_silent_for_long_is_lost(place: Place) -> None:
    place.clock.pass_time(LOST_SECONDS - 1)
    assert not place.is_lost()
    place.clock.pass_time(2)
    assert place.is_lost()
    assert place.lookout.doubtful == {"h1"}


def test_time_in_which_nobody_was_there_to_hear_it_does_not_count(place: Place) -> None:
    place.clock.sleep(10 * LOST_SECONDS)
    assert not place.is_lost()
    place.clock.pass_time(LOST_SECONDS - 1)
    assert not place.is_lost()
    place.clock.pass_time(2)
    assert place.is_lost()


def test_a_host_that_answers_before_that_is_not_lost(place: Place) -> None:
    place.clock.pass_time(LOST_SECONDS - 1)
    place.link.answered_at = place.clock.time()
    place.clock.pass_time(LOST_SECONDS - 1)
    assert not place.is_lost()


def test_a_host_that_broke_the_protocol_is_lost_at_once(place: Place) -> None:
    place.link.is_broken, place.link.trouble = True, MalformedError("h1", "nonsense")
    place.clock.pass_time(1)
    assert place.is_lost()
    (event,) = place.told
    assert isinstance(event, ReplicaExited)
    assert "h1 has sent something that drumline does not send: nonsense" in event.exit.message
    assert place.lookout.doubtful == {"h1"}


def test_a_host_that_answers_but_never_says_that_a_killed_replica_has_ended_is_lost(place: Place) -> None:
    place.link.is_up = True
    (kept,) = place.lives
    kept.kill_at = place.clock.time()
    place.clock.pass_time(LOST_SECONDS + 59)
    assert not place.is_lost()
    place.clock.pass_time(2)
    assert place.is_lost()
    assert place.lookout.doubtful == {"h1"}
