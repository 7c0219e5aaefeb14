"""Fake replicas: the events of a behavior, with any steps of time and after a resume."""

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


def play(*acts: FakeBehavior, text: str = "worker") -> Plan:
    """A plan with replicas of this behavior."""
    plan = gang(text)
    return plan.replace(replicas=tuple(each.replace(argv=command_of(*acts)) for each in plan.replicas))


class Stage:
    """An engine before an audience that remembers everything."""

    def __init__(self, folder: Path, clock: SimulatedTimeLoop | None = None) -> None:
        self.clock = clock or SimulatedTimeLoop()
        self.engine = FakeEngine(Site(folder, folder / "home", 1))
        self.folder = folder / trace_dir(FIRST, 0)
        self.session = open_fake(folder, self.clock, FakeSession)
        self.told = read_events(self.session, self.clock)

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
def test_an_act_is_a_command_and_back(act: FakeBehavior) -> None:
    assert behaviors_of(command_of(act, ENDLESS)) == (act, ENDLESS)


@pytest.mark.parametrize("words", [[], ["{"], ["[]"], ['{"exits": 3}'], ['{"after_seconds": "1"}']])
def test_an_act_that_cannot_be_read_is_refused(words: list[str], tmp_path: Path) -> None:
    plan = gang("worker")
    stage = Stage(tmp_path)
    with pytest.raises(EngineError, match=r"the behavior of worker\.0 cannot be read: "):
        stage.start(plan.replace(replicas=(plan.replicas[0].replace(argv=("act", *words)),)))
    assert stage.told == []


def test_any_other_command_is_said_and_done(tmp_path: Path) -> None:
    plan = gang("worker")
    stage = Stage(tmp_path)
    stage.start(plan.replace(replicas=(plan.replicas[0].replace(argv=("echo", "$HOME", "it's")),)))
    assert stage.told == [STARTED, ended(Exit(code=0), 1000.0)]
    assert stage.log() == """echo '$HOME' 'it'"'"'s'\n"""


def test_lines_come_in_their_time_with_the_variables_of_the_replica(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    lines = (LogLine("late", 2 * HOUR), LogLine("$DRUMLINE_ROLE, $UNKNOWN"), LogLine("$$ 5", HOUR))
    stage.start(play(FakeBehavior(lines, Exit(code=3), 3 * HOUR)))
    assert (stage.told, stage.log()) == ([STARTED], "worker, $UNKNOWN\n")
    stage.clock.pass_time(HOUR)
    assert stage.log() == "worker, $UNKNOWN\n$ 5\n"
    stage.clock.pass_time(5 * HOUR)
    assert stage.log() == "worker, $UNKNOWN\n$ 5\nlate\n"
    assert stage.told == [STARTED, ended(Exit(code=3), 1000.0 + 3 * HOUR)]


def test_who_has_ended_writes_no_more(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.start(play(FakeBehavior((LogLine("one", 1.0), LogLine("two", 2.0)), after_seconds=1.5)))
    stage.clock.pass_time(HOUR)
    assert stage.log() == "one\n"


def test_a_start_may_be_late_and_times_count_from_there(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.start(play(FakeBehavior((LogLine("up"),), after_seconds=5.0, starts_after_seconds=60.0)))
    assert (stage.told, stage.log()) == ([], "")
    stage.clock.pass_time(60.0)
    assert (stage.told, stage.log()) == ([STARTED], "up\n")
    stage.clock.pass_time(60.0)
    assert stage.told == [STARTED, ended(Exit(code=0), 1065.0)]


@pytest.mark.parametrize("grace_seconds", [0.0, 10.0])
def test_who_is_stopped_before_it_starts_never_does(tmp_path: Path, grace_seconds: float) -> None:
    stage = Stage(tmp_path)
    stage.start(play(FakeBehavior((LogLine("up"),), starts_after_seconds=60.0)))
    stage.clock.pass_time(5.0)
    stage.stop(grace_seconds)
    stage.clock.pass_time(HOUR)
    assert stage.told == [ended(Exit(message="it was never started"), 1005.0)]
    assert stage.log() == ""


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
def test_who_is_asked_ends_as_its_act_says_or_when_the_grace_is_over(
    tmp_path: Path, act: FakeBehavior, exit_: Exit, at_seconds: float
) -> None:
    stage = Stage(tmp_path)
    stage.start(play(act))
    stage.clock.pass_time(1.0)
    stage.stop()
    stage.clock.pass_time(HOUR)
    assert stage.told == [STARTED, ended(exit_, at_seconds)]


def test_each_attempt_has_its_act_and_the_last_is_for_all_that_follow(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    plan = play(FakeBehavior(exit=Exit(code=1)), FakeBehavior(exit=Exit(code=2)))
    for attempt in range(3):
        stage.start(plan, attempt)
    assert [each.exit.code for each in stage.told if isinstance(each, ReplicaExited)] == [1, 2, 2]


def test_a_session_that_resumes_an_incarnation_computes_its_state(tmp_path: Path) -> None:
    first = Stage(tmp_path)
    first.start(play(FakeBehavior((LogLine("one"), LogLine("two", HOUR)), Exit(code=7), 2 * HOUR)))
    second = Stage(tmp_path, SimulatedTimeLoop(1000.0 + 5 * HOUR))
    second.start(play(ENDLESS))  # what it plays was settled when it began
    assert second.told == [STARTED, ended(Exit(code=7), 1000.0 + 2 * HOUR)]
    assert second.log() == "one\ntwo\n"


@pytest.mark.parametrize(
    "exit_", [Exit(code=3), Exit(signal=9, message="why", out_of_memory=True), Exit(message="its host is gone")]
)
def test_an_end_is_reported_in_full_to_a_later_supervisor(tmp_path: Path, exit_: Exit) -> None:
    for _ in range(2):
        stage = Stage(tmp_path)
        stage.start(play(FakeBehavior(exit=exit_)))
        assert stage.told == [STARTED, ended(exit_, 1000.0)]


def test_a_term_that_an_earlier_engine_sent_was_sent(tmp_path: Path) -> None:
    first = Stage(tmp_path)
    first.start(play(ENDLESS.replace(after_term_seconds=60.0)))
    first.stop(grace_seconds=HOUR)
    second = Stage(tmp_path, SimulatedTimeLoop(1030.0))
    second.stop(grace_seconds=HOUR)
    second.clock.pass_time(HOUR)
    assert second.told == [STARTED, ended(Exit(signal=15), 1060.0)]


def test_no_replica_survives_a_restart_of_the_machine(tmp_path: Path) -> None:
    first = Stage(tmp_path)
    first.start(play(ENDLESS))
    trace = first.folder / TRACE
    trace.write_text(trace.read_text().replace(boot_id(), "another"))
    second = Stage(tmp_path, SimulatedTimeLoop(5.0))
    second.start(play(ENDLESS))
    assert second.told == [STARTED, ended(Exit(message="the machine was restarted"), 5.0)]


def test_a_trace_whose_first_line_was_cut_has_not_begun(tmp_path: Path) -> None:
    first = Stage(tmp_path)
    first.start(play(ENDLESS))
    trace = first.folder / TRACE
    trace.write_bytes(trace.read_bytes()[:20])
    second = Stage(tmp_path)
    second.start(play(FakeBehavior((LogLine("anew"),))))
    assert second.told == [STARTED, ended(Exit(code=0), 1000.0)]
    whole = trace.read_bytes()
    third = Stage(tmp_path)
    third.start(play(ENDLESS))
    assert third.told == second.told
    assert (third.log(), trace.read_bytes()) == ("anew\n", whole)


def test_it_is_found_by_its_name_and_not_listed(tmp_path: Path) -> None:
    assert isinstance(open_engine("fake", Site(tmp_path, tmp_path, 1)), FakeEngine)
    with pytest.raises(EngineError) as refused:
        open_engine("slurm", Site(tmp_path, tmp_path, 1))
    assert "fake" not in (refused.value.hint or "")


def test_it_renders_what_each_plays(tmp_path: Path) -> None:
    plan = play(ENDLESS, text="worker*2")
    engine = FakeEngine(Site(tmp_path, tmp_path / "home", 1))
    (form,) = engine.capabilities.forms
    data = json.loads(engine.render(plan, bind(plan, asyncio.run(engine.place(plan))), form))
    assert [each["id"] for each in data["replicas"]] == ["worker.0", "worker.1"]
    assert behaviors_of(data["replicas"][1]["argv"]) == (ENDLESS,)
    assert json.loads(data["replicas"][1]["env"]["TF_CONFIG"])["cluster"]["worker"] == [
        "worker-0.fake:2222",
        "worker-1.fake:2222",
    ]


# --- a whole supervisor, by the same clock ----------------------------------------------------------------------------


def see_through(plan: Plan, folder: Path, kind: type[FakeSession] = FakeSession) -> Supervisor:
    """Supervise a run to its end, in no time."""
    stage = SimulatedTimeLoop()
    session = open_fake(folder, stage, kind)
    path = folder / "events.jsonl"
    journal = Journal(path, boot="b", wall=time.time, since_boot=stage.time)
    supervisor = Supervisor(plan, session, journal, read_journal(path, plan), stage)
    supervisor.begin()
    stage.wait(supervisor.run())
    journal.close()
    return supervisor


def test_a_run_of_days_is_over_in_no_time(tmp_path: Path) -> None:
    day = 24 * HOUR
    fall = FakeBehavior((LogLine("step 1", HOUR),), Exit(code=1), day)
    supervisor = see_through(play(fall, fall, fall, FakeBehavior(after_seconds=day), text="worker*2 crash=5"), tmp_path)
    assert supervisor.ending
    assert (supervisor.ending.phase, supervisor.state.attempt) == (Phase.FINISHED, 3)
    assert (tmp_path / trace_dir(FIRST, 2) / LOG).read_text() == "step 1\n"
    records = read_journal(tmp_path / "events.jsonl", supervisor.plan)
    assert records[-1].since_boot - records[0].since_boot > 4 * day


def test_a_replica_that_does_not_start_in_time_is_given_up(tmp_path: Path) -> None:
    supervisor = see_through(play(FakeBehavior(starts_after_seconds=HOUR), text="worker start=600"), tmp_path)
    assert supervisor.ending
    assert supervisor.ending.reason == "StartTimeout"


def test_a_run_is_held_to_its_time_limit(tmp_path: Path) -> None:
    supervisor = see_through(play(ENDLESS, text="worker*3 run=7200"), tmp_path)
    assert supervisor.ending
    assert supervisor.ending.reason == "TimeLimit"
    ends = [each.at_seconds for each in supervisor.state.replicas.values()]
    assert ends == [1000.0 + 7200.0] * 3


def test_tensorboard_is_simulated_and_resumed(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    plan = play(ENDLESS)
    stage.clock.wait(stage.session.serve(plan))
    stage.clock.wait(stage.session.serve(plan))
    told = [ReplicaStarted(TENSORBOARD, 0), TensorBoardServed("http://tensorboard.fake/")]
    assert stage.told == [*told, told[1]]
    again = Stage(tmp_path, stage.clock)
    again.clock.wait(again.session.serve(plan))
    assert again.told == told
    again.clock.wait(again.session.stop([Incarnation(TENSORBOARD, 0)], grace_seconds=10.0))
    assert again.told[2:] == [ReplicaExited(TENSORBOARD, 0, 0, Exit(code=0), stage.clock.time())]


class BlindSession(FakeSession):
    """A session that can show nothing."""

    serve = None  # type: ignore[assignment]  # it does not have this ability


def test_where_nothing_can_be_shown_only_an_explicit_request_is_reported(tmp_path: Path) -> None:
    plan = play(FakeBehavior(after_seconds=HOUR))
    write_scalars(tmp_path / "home" / "runs" / "4" / "output", "loss", [1.0])
    asked = see_through(plan.replace(tensorboard=True), tmp_path, BlindSession)
    assert asked.state.phase is Phase.FINISHED
    (warning,) = asked.state.warnings
    assert "TensorBoard beside a run is not supported on local" in warning
    (tmp_path / "other").mkdir()
    unasked = see_through(plan.replace(tensorboard=None), tmp_path / "other", BlindSession)
    assert (unasked.state.tensorboard, unasked.state.warnings) == (None, ())


def test_a_run_that_writes_summaries_is_shown_until_it_ends(tmp_path: Path) -> None:
    plan = play(FakeBehavior(after_seconds=HOUR)).replace(tensorboard=None)
    write_scalars(tmp_path / "home" / "runs" / "4" / "output" / "summaries", "loss", [1.0])
    supervisor = see_through(plan, tmp_path)
    assert supervisor.state.phase is Phase.FINISHED
    kinds = [type(record.event) for record in read_journal(tmp_path / "events.jsonl", supervisor.plan)]
    assert kinds.count(SummariesFound) == kinds.count(TensorBoardServed) == 1
    assert supervisor.state.tensorboard
    assert supervisor.state.tensorboard.phase is Phase.FINISHED
