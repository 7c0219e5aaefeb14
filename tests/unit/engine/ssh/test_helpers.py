"""A helper on several hosts is reported as one: one log, one start, one exit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from drumline.engine.agent.launches import incarnation_to_text
from drumline.engine.ssh.helpers import Helpers, PartEnded, with_secrets
from drumline.engine.ssh.reports import LogPiece
from drumline.engine.tracker import NEVER_STARTED
from drumline.errors import EngineError
from drumline.plan.codec import plan_to_json
from drumline.plan.types import ReplicaId
from drumline.run.event import Event, Exit, ReplicaExited, ReplicaStarted
from drumline.run.incarnation import Incarnation
from scaffold.loops import SimulatedTimeLoop
from scaffold.plans import plan_of

INCARNATION = Incarnation(ReplicaId("prepare", 0), 0, 0)


class Scenario:
    """Helpers of one run, and the events that they reported."""

    def __init__(self, folder: Path, hosts: Sequence[str] = ("a", "b")) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.reported: list[Event] = []
        self.helpers = Helpers(folder, SimulatedTimeLoop(100.0), self.reported.append)
        self.hosts = hosts
        self.joined: list[tuple[str, Exit]] = []  # exits on hosts that connected late

    def begin(self) -> None:
        for host in self.helpers.begin(INCARNATION, self.hosts):
            self.helpers.go(INCARNATION, host, f"plan of {host}")

    def log(self, host: str, at: int, text: str) -> None:
        if helper := self.helpers.find_ordered(INCARNATION, host):
            self.helpers.write(host, helper, LogPiece(INCARNATION, at, text.encode()))

    def end(self, host: str, exit_: Exit) -> None:
        if helper := self.helpers.find_ordered(INCARNATION, host):
            self._note(self.helpers.end_part(helper, host, exit_))

    def _note(self, ended: PartEnded | None) -> None:
        if ended and ended.is_late:
            self.joined.append((ended.host, ended.exit))

    def start(self, host: str, pid: int) -> None:
        if helper := self.helpers.find_ordered(INCARNATION, host):
            self.helpers.started(
                helper, ReplicaStarted(INCARNATION.replica, INCARNATION.attempt, INCARNATION.incarnation, pid)
            )

    @property
    def ends(self) -> list[Exit]:
        return [event.exit for event in self.reported if isinstance(event, ReplicaExited)]

    @property
    def lines(self) -> list[str]:
        return (self.folder / INCARNATION.folder / "log").read_text().splitlines()


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    scenario = Scenario(tmp_path)
    scenario.begin()
    return scenario


def test_a_helper_starts_once_and_ends_when_it_has_ended_on_every_host(scenario: Scenario) -> None:
    for host in ("a", "b"):
        scenario.start(host, 4711)
    assert scenario.reported == [
        ReplicaStarted(INCARNATION.replica, INCARNATION.attempt, INCARNATION.incarnation, 4711, note="on 2 hosts")
    ]
    scenario.end("a", Exit(0))
    assert not scenario.ends
    scenario.end("b", Exit(0))
    assert scenario.ends == [Exit(0)]


def test_complete_lines_of_all_hosts_are_in_one_log_each_with_its_host(scenario: Scenario) -> None:
    scenario.log("a", 0, "one\ntw")
    scenario.log("b", 0, "uno\n")
    scenario.log("a", 6, "o\nno end")
    scenario.end("a", Exit(0))
    assert scenario.lines == ["a: one", "b: uno", "a: two", "a: no end"]


def test_output_that_a_host_sends_again_is_not_repeated(scenario: Scenario) -> None:
    scenario.log("a", 0, "one\ntwo\n")
    scenario.log("a", 4, "two\nthree\n")
    assert scenario.lines == ["a: one", "a: two", "a: three"]
    assert next(scenario.helpers.orders("a"))["offsets"] == {incarnation_to_text(INCARNATION): 14}


def test_the_log_of_a_single_host_is_unchanged(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, ("a",))
    scenario.begin()
    scenario.log("a", 0, "one\n")
    scenario.end("a", Exit(3))
    assert scenario.lines == ["one"]
    assert scenario.ends == [Exit(3)]


def test_the_first_failure_stops_the_helper_on_the_other_hosts_and_is_its_exit(scenario: Scenario) -> None:
    assert [each["do"] for each in scenario.helpers.orders("b")] == ["prepare"]
    helper = scenario.helpers.find_ordered(INCARNATION, "a")
    assert helper
    assert scenario.helpers.end_part(helper, "a", Exit(3)) == PartEnded("a", Exit(3), to_stop=frozenset({"b"}))
    assert [each["do"] for each in scenario.helpers.orders("b")] == ["stop"]
    assert not scenario.ends
    scenario.end("b", Exit(None, 9))
    assert scenario.ends == [Exit(3, message="on a")]


def test_a_part_that_was_stopped_before_its_start_is_not_the_failure_of_the_helper(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path)
    scenario.helpers.begin(INCARNATION, ("a", "b"))
    scenario.helpers.go(INCARNATION, "b", "plan of b")
    scenario.end("b", Exit(3))
    assert scenario.ends == [Exit(3, message="on b")]

    other = Scenario(tmp_path / "other")
    other.begin()
    other.end("b", Exit(3))
    other.end("a", NEVER_STARTED)  # the order to stop arrived before the helper had started
    assert other.ends == [Exit(3, message="on b")]


def test_a_helper_ends_with_the_error_of_a_host_that_cannot_start_it_or_is_lost(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path)
    for host in scenario.helpers.begin(INCARNATION, ("a", "b")):
        assert scenario.helpers.waits(INCARNATION, host)
    scenario.helpers.refuse(INCARNATION, "a", "the disk of a is full")
    assert scenario.ends == [Exit(message="the disk of a is full")]

    other = Scenario(tmp_path / "other")
    other.begin()
    other.end("a", Exit(0))
    other.helpers.lose("b", Exit(message="the host b has not answered", reason="HostLost"))
    assert [(each.reason, each.message) for each in other.ends] == [("HostLost", "the host b has not answered")]


def test_the_next_supervisor_continues_a_helper_on_its_recorded_hosts(scenario: Scenario, tmp_path: Path) -> None:
    scenario.log("a", 0, "one\ntw")
    again = Scenario(tmp_path, ("a", "b", "c"))  # `c` has connected since
    assert list(again.helpers.begin(INCARNATION, again.hosts)) == ["a", "b"]
    again.helpers.go(INCARNATION, "a", "plan of a")
    assert next(again.helpers.orders("a"))["offsets"] == {incarnation_to_text(INCARNATION): 6}
    again.log("a", 6, "o\n")
    assert again.lines == ["a: one", "a: two"]
    again.helpers.go(INCARNATION, "b", "plan of b")
    for host in ("a", "b"):
        again.end(host, Exit(0))

    third = Scenario(tmp_path)
    third.begin()
    assert third.ends == [Exit(0)]


def test_the_next_supervisor_can_stop_a_helper_at_once(scenario: Scenario, tmp_path: Path) -> None:
    again = Scenario(tmp_path)
    assert again.helpers.stop(INCARNATION, 5.0) == {"a", "b"}
    assert [each["do"] for host in ("a", "b") for each in again.helpers.orders(host)] == ["stop", "stop"]
    empty = Scenario(tmp_path / "empty")
    empty.helpers.stop(INCARNATION, 5.0)
    assert [each.message for each in empty.ends] == ["it was never started"]


class LateHost(Scenario):
    """A build and a preparation on `a`; `b` was not connected, and connects later."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, ("a",))
        names = (BUILD.replica, INCARNATION.replica)
        self.helpers = Helpers(folder, SimulatedTimeLoop(100.0), self.reported.append, names)

    def work(self, incarnation: Incarnation, *, on: str = "a", code: int = 0) -> None:
        for host in self.helpers.begin(incarnation, (on,)) if on == "a" else (on,):
            self.helpers.go(incarnation, host, f"plan of {host}")
            helper = self.helpers.find_ordered(incarnation, host)
            assert helper
            self._note(self.helpers.end_part(helper, host, Exit(code)))


BUILD = Incarnation(ReplicaId("build", 0), 0, 0)


def test_a_host_that_connects_while_a_helper_runs_takes_part_in_it(tmp_path: Path) -> None:
    late = LateHost(tmp_path)
    late.work(BUILD, code=0)
    late.begin()
    late.helpers.join("b")  # the build is first, and has ended on the other host
    late.work(BUILD, on="b")
    assert late.helpers.join("b") == INCARNATION
    late.helpers.go(INCARNATION, "b", "plan of b")
    late.end("a", Exit(0))
    assert [end.replica for end in late.reported if isinstance(end, ReplicaExited)] == [BUILD.replica]
    late.end("b", Exit(0))
    assert late.ends == [Exit(0), Exit(0)]
    assert not late.helpers.unready("b")


def test_a_host_that_connects_late_runs_all_helpers_one_after_the_other(tmp_path: Path) -> None:
    late = LateHost(tmp_path)
    late.work(BUILD)
    late.work(INCARNATION)
    assert late.helpers.unready("b") == "build is not done on b, which was not connected when it began"
    assert not late.helpers.unready("a")
    assert late.helpers.join("a") is None
    assert late.helpers.join("b") == BUILD
    assert late.helpers.join("b") is None  # the build still runs there
    assert late.helpers.living("b") == [BUILD]
    late.work(BUILD, on="b")
    assert late.helpers.join("b") == INCARNATION
    assert late.helpers.unready("b").startswith("prepare is not done on b")
    late.helpers.go(INCARNATION, "b", "plan of b")
    assert [each["do"] for each in late.helpers.orders("b")] == ["prepare"]
    late.log("b", 0, "made\n")
    late.end("b", Exit(0))
    assert late.joined == [("b", Exit(0)), ("b", Exit(0))]
    assert not late.helpers.unready("b")
    assert late.helpers.join("b") is None
    assert late.ends == [Exit(0), Exit(0)]  # only the ends on the first host
    assert late.lines == ["b: made"]
    assert not LateHost(tmp_path).helpers.unready("b")  # also for a supervisor that returns


def test_a_failure_on_a_late_host_excludes_this_host_only(tmp_path: Path) -> None:
    late = LateHost(tmp_path)
    late.work(BUILD)
    late.work(INCARNATION)
    late.helpers.join("b")
    late.work(BUILD, on="b", code=3)
    assert late.helpers.unready("b") == "build is not done on b, which was not connected when it began: exit code 3"
    assert late.helpers.has_failed("b")
    assert not late.helpers.has_failed("a")
    assert late.helpers.join("b") is None
    assert late.ends == [Exit(0), Exit(0)]
    assert LateHost(tmp_path).helpers.join("b") == BUILD  # a supervisor that returns tries once more


def test_a_helper_that_has_failed_is_not_repeated_on_a_late_host(tmp_path: Path) -> None:
    late = LateHost(tmp_path)
    late.work(BUILD, code=3)
    assert [late.helpers.unready(host) for host in ("a", "b")] == ["", ""]
    assert late.helpers.join("b") is None


def test_a_late_host_that_is_lost_starts_again_when_it_connects(tmp_path: Path) -> None:
    late = LateHost(tmp_path)
    late.work(BUILD)
    late.helpers.join("b")
    gone = Exit(message="gone", reason="HostLost")
    assert late.helpers.lose("b", gone) == [PartEnded("b", gone, is_late=True)]
    assert late.helpers.living("b") == []
    assert late.helpers.join("b") == BUILD


def test_secrets_of_helpers_are_those_of_this_machine() -> None:
    plan = plan_of("data: {path: d, prepare: fetch}\nenv: {TOKEN: {from: MY_TOKEN}, OTHER: x}\nengine: {ssh: [a]}")
    assert with_secrets(plan, {"MY_TOKEN": "s3cret"}).preparations[0].env == {"TOKEN": "s3cret", "OTHER": "x"}
    with pytest.raises(EngineError, match="the secret MY_TOKEN is not set"):
        with_secrets(plan, {})


def test_hosts_that_run_helpers_do_not_receive_the_variables_of_replicas() -> None:
    roles = "roles: {worker: {replicas: 1, env: {PASSWORD: sesame}}, ps: 1}"
    plan = plan_of(f"data: {{path: d, prepare: fetch}}\n{roles}\nengine: {{ssh: [a]}}")
    assert "sesame" in plan_to_json(plan)
    assert "sesame" not in plan_to_json(with_secrets(plan, {}))
