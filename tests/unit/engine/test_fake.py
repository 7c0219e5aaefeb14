"""Fake replicas: the events of their behavior, also in another session that resumes them."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest

from drumline.engine.fake import FakeEngine, FakeSession
from drumline.engine.fake.behavior import FakeBehavior, LogLine, behaviors_of, command_of
from drumline.engine.protocol import Site
from drumline.engine.registry import open_engine
from drumline.errors import EngineError
from drumline.plan.bind import bind
from drumline.plan.types import TENSORBOARD, Plan, ReplicaId
from drumline.run.event import Exit, ReplicaExited, ReplicaStarted, SummariesFound, TensorBoardServed
from drumline.run.incarnation import Incarnation
from drumline.run.state import Phase
from drumline.run.traces import LOG, TRACE, trace_dir
from drumline.runtime.keeper import boot_id
from drumline.store.journal import Journal, read_journal
from drumline.supervise.supervisor import Supervisor
from scaffold.fake_sessions import open_fake, read_events
from scaffold.gangs import gang
from scaffold.loops import SimulatedTimeLoop
from scaffold.summaries import write_scalars

HOUR = 3600.0
FIRST = ReplicaId("worker", 0)
ENDLESS = FakeBehavior(exit=None)


def plan_with(*acts: FakeBehavior, text: str = "worker") -> Plan:
    """Return a plan with replicas of this behavior."""
    plan = gang(text)
    return plan.replace(replicas=tuple(each.replace(argv=command_of(*acts)) for each in plan.replicas))


class RecordedSession:
    """A session of the fake engine, and all events that it reported."""

    def __init__(self, folder: Path, clock: SimulatedTimeLoop | None = None) -> None:
        self.clock = clock or SimulatedTimeLoop()
        self.engine = FakeEngine(Site(folder, folder / "home", 1))
        self.folder = folder / trace_dir(FIRST, 0)
        self.session = open_fake(folder, self.clock, FakeSession)
        self.reported = read_events(self.session, self.clock)

    def start(self, plan: Plan, attempt: int = 0) -> None:
        placed = self.clock.wait(self.session.place(plan))
        self.clock.wait(self.session.start(bind(plan, placed.places, attempt=attempt)))

    def stop(self, grace_seconds: float = 10.0) -> None:
        self.clock.wait(self.session.stop([Incarnation(FIRST, 0)], grace_seconds=grace_seconds))

    def log(self) -> str:
        return (self.folder / LOG).read_text()


def ended(exit_: Exit, at_seconds: float) -> ReplicaExited:
    return ReplicaExited(FIRST, 0, 0, exit_, at_seconds)


STARTED = ReplicaStarted(FIRST, 0)


@pytest.mark.parametrize(
    "act",
    [
        FakeBehavior(),
        ENDLESS,
        FakeBehavior((LogLine("é $HOME"), LogLine("", 2.5)), Exit(signal=9, message="why"), 3.0, None, 1.0, 0.5),
        FakeBehavior(exit=Exit(message="its host is gone")),
    ],
    ids=str,
)
def test_a_behavior_is_unchanged_after_it_was_written_as_a_command_and_read(act: FakeBehavior) -> None:
    assert behaviors_of(command_of(act, ENDLESS)) == (act, ENDLESS)


@pytest.mark.parametrize("words", [[], ["{"], ["[]"], ['{"exits": 3}'], ['{"after_seconds": "1"}']])
def test_a_behavior_that_cannot_be_read_is_refused(words: list[str], tmp_path: Path) -> None:
    plan = gang("worker")
    recorded = RecordedSession(tmp_path)
    with pytest.raises(EngineError, match=r"the behavior of worker\.0 cannot be read: "):
        recorded.start(plan.replace(replicas=(plan.replicas[0].replace(argv=("act", *words)),)))
    assert recorded.reported == []


def test_a_command_without_a_behavior_is_printed_and_succeeds(tmp_path: Path) -> None:
    plan = gang("worker")
    recorded = RecordedSession(tmp_path)
    recorded.start(plan.replace(replicas=(plan.replicas[0].replace(argv=("echo", "$HOME", "it's")),)))
    assert recorded.reported == [STARTED, ended(Exit(code=0), 1000.0)]
    assert recorded.log() == """echo '$HOME' 'it'"'"'s'\n"""


def test_lines_are_written_at_their_times_with_the_variables_of_the_replica(tmp_path: Path) -> None:
    recorded = RecordedSession(tmp_path)
    lines = (LogLine("late", 2 * HOUR), LogLine("$DRUMLINE_ROLE, $UNKNOWN"), LogLine("$$ 5", HOUR))
    recorded.start(plan_with(FakeBehavior(lines, Exit(code=3), 3 * HOUR)))
    assert (recorded.reported, recorded.log()) == ([STARTED], "worker, $UNKNOWN\n")
    recorded.clock.pass_time(HOUR)
    assert recorded.log() == "worker, $UNKNOWN\n$ 5\n"
    recorded.clock.pass_time(5 * HOUR)
    assert recorded.log() == "worker, $UNKNOWN\n$ 5\nlate\n"
    assert recorded.reported == [STARTED, ended(Exit(code=3), 1000.0 + 3 * HOUR)]


def test_a_replica_that_has_ended_writes_no_more(tmp_path: Path) -> None:
    recorded = RecordedSession(tmp_path)
    recorded.start(plan_with(FakeBehavior((LogLine("one", 1.0), LogLine("two", 2.0)), after_seconds=1.5)))
    recorded.clock.pass_time(HOUR)
    assert recorded.log() == "one\n"


def test_times_of_a_behavior_count_from_a_delayed_start(tmp_path: Path) -> None:
    recorded = RecordedSession(tmp_path)
    recorded.start(plan_with(FakeBehavior((LogLine("up"),), after_seconds=5.0, starts_after_seconds=60.0)))
    assert (recorded.reported, recorded.log()) == ([], "")
    recorded.clock.pass_time(60.0)
    assert (recorded.reported, recorded.log()) == ([STARTED], "up\n")
    recorded.clock.pass_time(60.0)
    assert recorded.reported == [STARTED, ended(Exit(code=0), 1065.0)]


@pytest.mark.parametrize("grace_seconds", [0.0, 10.0])
def test_a_replica_that_is_stopped_before_its_start_never_starts(tmp_path: Path, grace_seconds: float) -> None:
    recorded = RecordedSession(tmp_path)
    recorded.start(plan_with(FakeBehavior((LogLine("up"),), starts_after_seconds=60.0)))
    recorded.clock.pass_time(5.0)
    recorded.stop(grace_seconds)
    recorded.clock.pass_time(HOUR)
    assert recorded.reported == [ended(Exit(message="it was never started"), 1005.0)]
    assert recorded.log() == ""


@pytest.mark.parametrize(
    ("act", "exit_", "at_seconds"),
    [
        (ENDLESS, Exit(signal=15), 1001.0),
        (ENDLESS.replace(after_term_seconds=4.0, exit_on_term=Exit(code=42)), Exit(code=42), 1005.0),
        (ENDLESS.replace(after_term_seconds=40.0), Exit(signal=9), 1011.0),
        (ENDLESS.replace(exit_on_term=None), Exit(signal=9), 1011.0),
        (FakeBehavior(after_seconds=3.0, exit_on_term=None), Exit(code=0), 1003.0),
    ],
    ids=str,
)
def test_a_replica_that_is_stopped_ends_by_its_behavior_or_after_the_grace(
    tmp_path: Path, act: FakeBehavior, exit_: Exit, at_seconds: float
) -> None:
    recorded = RecordedSession(tmp_path)
    recorded.start(plan_with(act))
    recorded.clock.pass_time(1.0)
    recorded.stop()
    recorded.clock.pass_time(HOUR)
    assert recorded.reported == [STARTED, ended(exit_, at_seconds)]


def test_each_attempt_has_its_behavior_and_the_last_one_applies_to_all_later_attempts(tmp_path: Path) -> None:
    recorded = RecordedSession(tmp_path)
    plan = plan_with(FakeBehavior(exit=Exit(code=1)), FakeBehavior(exit=Exit(code=2)))
    for attempt in range(3):
        recorded.start(plan, attempt)
    assert [each.exit.code for each in recorded.reported if isinstance(each, ReplicaExited)] == [1, 2, 2]


def test_a_session_that_resumes_an_incarnation_computes_its_state(tmp_path: Path) -> None:
    first = RecordedSession(tmp_path)
    first.start(plan_with(FakeBehavior((LogLine("one"), LogLine("two", HOUR)), Exit(code=7), 2 * HOUR)))
    second = RecordedSession(tmp_path, SimulatedTimeLoop(1000.0 + 5 * HOUR))
    second.start(plan_with(ENDLESS))  # its behavior was fixed when it started
    assert second.reported == [STARTED, ended(Exit(code=7), 1000.0 + 2 * HOUR)]
    assert second.log() == "one\ntwo\n"


@pytest.mark.parametrize(
    "exit_", [Exit(code=3), Exit(signal=9, message="why", out_of_memory=True), Exit(message="its host is gone")]
)
def test_an_end_is_reported_in_full_to_a_later_supervisor(tmp_path: Path, exit_: Exit) -> None:
    for _ in range(2):
        recorded = RecordedSession(tmp_path)
        recorded.start(plan_with(FakeBehavior(exit=exit_)))
        assert recorded.reported == [STARTED, ended(exit_, 1000.0)]


def test_a_term_of_an_earlier_session_still_ends_the_replica(tmp_path: Path) -> None:
    first = RecordedSession(tmp_path)
    first.start(plan_with(ENDLESS.replace(after_term_seconds=60.0)))
    first.stop(grace_seconds=HOUR)
    second = RecordedSession(tmp_path, SimulatedTimeLoop(1030.0))
    second.stop(grace_seconds=HOUR)
    second.clock.pass_time(HOUR)
    assert second.reported == [STARTED, ended(Exit(signal=15), 1060.0)]


def test_no_replica_survives_a_restart_of_the_machine(tmp_path: Path) -> None:
    first = RecordedSession(tmp_path)
    first.start(plan_with(ENDLESS))
    trace = first.folder / TRACE
    trace.write_text(trace.read_text().replace(boot_id(), "another"))
    second = RecordedSession(tmp_path, SimulatedTimeLoop(5.0))
    second.start(plan_with(ENDLESS))
    assert second.reported == [STARTED, ended(Exit(message="the machine was restarted"), 5.0)]


def test_a_trace_with_an_incomplete_first_line_has_not_started(tmp_path: Path) -> None:
    first = RecordedSession(tmp_path)
    first.start(plan_with(ENDLESS))
    trace = first.folder / TRACE
    trace.write_bytes(trace.read_bytes()[:20])
    second = RecordedSession(tmp_path)
    second.start(plan_with(FakeBehavior((LogLine("anew"),))))
    assert second.reported == [STARTED, ended(Exit(code=0), 1000.0)]
    whole = trace.read_bytes()
    third = RecordedSession(tmp_path)
    third.start(plan_with(ENDLESS))
    assert third.reported == second.reported
    assert (third.log(), trace.read_bytes()) == ("anew\n", whole)


def test_the_fake_engine_is_found_by_its_name_and_not_listed(tmp_path: Path) -> None:
    assert isinstance(open_engine("fake", Site(tmp_path, tmp_path, 1)), FakeEngine)
    with pytest.raises(EngineError) as refused:
        open_engine("slurm", Site(tmp_path, tmp_path, 1))
    assert "fake" not in (refused.value.hint or "")


def test_the_behavior_of_each_replica_is_rendered(tmp_path: Path) -> None:
    plan = plan_with(ENDLESS, text="worker*2")
    engine = FakeEngine(Site(tmp_path, tmp_path / "home", 1))
    (form,) = engine.capabilities.forms
    data = json.loads(engine.render(plan, bind(plan, asyncio.run(engine.place(plan))), form))
    assert [each["id"] for each in data["replicas"]] == ["worker.0", "worker.1"]
    assert behaviors_of(data["replicas"][1]["argv"]) == (ENDLESS,)
    assert json.loads(data["replicas"][1]["env"]["TF_CONFIG"])["cluster"]["worker"] == [
        "worker-0.fake:2222",
        "worker-1.fake:2222",
    ]


# --- a complete supervisor, with the same clock -----------------------------------------------------------------------


def supervise_to_end(plan: Plan, folder: Path, kind: type[FakeSession] = FakeSession) -> Supervisor:
    """Supervise a run to its end with a simulated clock."""
    recorded = SimulatedTimeLoop()
    session = open_fake(folder, recorded, kind)
    path = folder / "events.jsonl"
    journal = Journal(path, boot="b", wall=time.time, since_boot=recorded.time)
    supervisor = Supervisor(plan, session, journal, read_journal(path, plan), recorded)
    supervisor.begin()
    recorded.wait(supervisor.run())
    journal.close()
    return supervisor


def test_a_run_of_days_takes_no_real_time(tmp_path: Path) -> None:
    day = 24 * HOUR
    fall = FakeBehavior((LogLine("step 1", HOUR),), Exit(code=1), day)
    supervisor = supervise_to_end(
        plan_with(fall, fall, fall, FakeBehavior(after_seconds=day), text="worker*2 crash=5"), tmp_path
    )
    assert supervisor.ending
    assert (supervisor.ending.phase, supervisor.state.attempt) == (Phase.FINISHED, 3)
    assert (tmp_path / trace_dir(FIRST, 2) / LOG).read_text() == "step 1\n"
    records = read_journal(tmp_path / "events.jsonl", supervisor.plan)
    assert records[-1].since_boot - records[0].since_boot > 4 * day


def test_a_run_fails_if_a_replica_does_not_start_in_time(tmp_path: Path) -> None:
    supervisor = supervise_to_end(plan_with(FakeBehavior(starts_after_seconds=HOUR), text="worker start=600"), tmp_path)
    assert supervisor.ending
    assert supervisor.ending.reason == "StartTimeout"


def test_a_run_is_stopped_at_its_time_limit(tmp_path: Path) -> None:
    supervisor = supervise_to_end(plan_with(ENDLESS, text="worker*3 run=7200"), tmp_path)
    assert supervisor.ending
    assert supervisor.ending.reason == "TimeLimit"
    ends = [each.at_seconds for each in supervisor.state.replicas.values()]
    assert ends == [1000.0 + 7200.0] * 3


def test_tensorboard_is_simulated_and_resumed(tmp_path: Path) -> None:
    recorded = RecordedSession(tmp_path)
    plan = plan_with(ENDLESS)
    recorded.clock.wait(recorded.session.serve(plan))
    recorded.clock.wait(recorded.session.serve(plan))
    reported = [ReplicaStarted(TENSORBOARD, 0), TensorBoardServed("http://tensorboard.fake/")]
    assert recorded.reported == [*reported, reported[1]]
    again = RecordedSession(tmp_path, recorded.clock)
    again.clock.wait(again.session.serve(plan))
    assert again.reported == reported
    again.clock.wait(again.session.stop([Incarnation(TENSORBOARD, 0)], grace_seconds=10.0))
    assert again.reported[2:] == [ReplicaExited(TENSORBOARD, 0, 0, Exit(code=0), recorded.clock.time())]


class SessionWithoutTensorBoard(FakeSession):
    """A session of an engine that does not support TensorBoard."""

    serve = None  # type: ignore[assignment]  # it does not have this ability


def test_without_support_for_tensorboard_only_an_explicit_request_gives_a_warning(tmp_path: Path) -> None:
    plan = plan_with(FakeBehavior(after_seconds=HOUR))
    write_scalars(tmp_path / "home" / "runs" / "4" / "output", "loss", [1.0])
    asked = supervise_to_end(plan.replace(tensorboard=True), tmp_path, SessionWithoutTensorBoard)
    assert asked.state.phase is Phase.FINISHED
    (warning,) = asked.state.warnings
    assert "TensorBoard beside a run is not supported on local" in warning
    (tmp_path / "other").mkdir()
    unasked = supervise_to_end(plan.replace(tensorboard=None), tmp_path / "other", SessionWithoutTensorBoard)
    assert (unasked.state.tensorboard, unasked.state.warnings) == (None, ())


def test_tensorboard_serves_a_run_that_writes_summaries_until_it_ends(tmp_path: Path) -> None:
    plan = plan_with(FakeBehavior(after_seconds=HOUR)).replace(tensorboard=None)
    write_scalars(tmp_path / "home" / "runs" / "4" / "output" / "summaries", "loss", [1.0])
    supervisor = supervise_to_end(plan, tmp_path)
    assert supervisor.state.phase is Phase.FINISHED
    kinds = [type(record.event) for record in read_journal(tmp_path / "events.jsonl", supervisor.plan)]
    assert kinds.count(SummariesFound) == kinds.count(TensorBoardServed) == 1
    assert supervisor.state.tensorboard
    assert supervisor.state.tensorboard.phase is Phase.FINISHED
