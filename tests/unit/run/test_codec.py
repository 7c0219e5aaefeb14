"""Events as JSON: what is written is read back equal, by this version and by those to come."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drumline.plan.types import ROLES, TENSORBOARD, ReplicaId
from drumline.record import Record, field_defaults
from drumline.run.codec import event_from_data, event_to_data
from drumline.run.event import (
    AttemptDelayed,
    AttemptPlaced,
    Cause,
    CauseNamed,
    DelayChosen,
    EngineFailed,
    EngineWarned,
    Event,
    Evidence,
    Exit,
    FirstStepTaken,
    GangHung,
    ProjectCarried,
    RendezvousFailed,
    ReplicaExited,
    ReplicaStarted,
    ReplicaWaits,
    ResumeRequested,
    RoomFound,
    RunAccepted,
    StacksTaken,
    StepsResumed,
    StepsStalled,
    StopRequested,
    SummariesFound,
    SupervisorReturned,
    TensorBoardServed,
    TimerFired,
)

FIXTURE = Path(__file__).with_name("events.jsonl")

replicas = st.builds(ReplicaId, st.sampled_from(ROLES), st.integers(0, 10**8))
numbers = st.integers(0, 2**31)
seconds = st.floats(0, 1e12)
texts = st.text(st.characters(exclude_categories=["Cs"]))
exits = st.builds(Exit, st.none() | numbers, st.none() | numbers, texts, st.booleans(), texts)
evidence = st.builds(
    Evidence, texts, st.sampled_from(["", "gone", "silent"]), st.lists(replicas, max_size=2).map(tuple)
)
KINDS: dict[type, st.SearchStrategy[Event]] = {
    RunAccepted: st.just(RunAccepted()),
    AttemptPlaced: st.builds(AttemptPlaced, numbers, st.lists(texts, min_size=1, max_size=3).map(tuple)),
    AttemptDelayed: st.builds(AttemptDelayed, numbers, texts),
    RoomFound: st.builds(RoomFound, numbers),
    ReplicaStarted: st.builds(ReplicaStarted, replicas, numbers, numbers, st.none() | numbers),
    ReplicaWaits: st.builds(ReplicaWaits, replicas, numbers, numbers, texts, texts, st.booleans()),
    ReplicaExited: st.builds(ReplicaExited, replicas, numbers, numbers, exits, seconds, st.none() | evidence),
    FirstStepTaken: st.builds(FirstStepTaken, numbers, replicas, st.none() | numbers, seconds),
    StopRequested: st.builds(StopRequested, st.booleans(), seconds, st.booleans()),
    ResumeRequested: st.just(ResumeRequested()),
    GangHung: st.builds(GangHung, numbers, texts),
    RendezvousFailed: st.builds(RendezvousFailed, numbers, st.none() | replicas, texts),
    StepsStalled: st.builds(StepsStalled, numbers, st.none() | numbers, seconds, seconds, st.none() | replicas, texts),
    StepsResumed: st.builds(StepsResumed, numbers, st.none() | numbers, seconds),
    StacksTaken: st.builds(StacksTaken, numbers, st.none() | replicas, texts),
    CauseNamed: st.builds(
        CauseNamed,
        numbers,
        st.builds(Cause, st.none() | replicas, numbers, exits, texts, texts, texts),
        texts,
        st.booleans(),
    ),
    TimerFired: st.builds(TimerFired, texts, numbers),
    DelayChosen: st.builds(DelayChosen, numbers, seconds),
    EngineFailed: st.builds(EngineFailed, numbers, texts),
    EngineWarned: st.builds(EngineWarned, numbers, texts),
    ProjectCarried: st.builds(ProjectCarried, numbers, numbers, numbers, st.none() | numbers),
    SummariesFound: st.just(SummariesFound()),
    TensorBoardServed: st.builds(TensorBoardServed, texts),
    SupervisorReturned: st.builds(SupervisorReturned, numbers, numbers),
}


def test_every_event_type_is_tested_here() -> None:
    assert set(KINDS) == set(get_args(Event))


@settings(deadline=None)
@given(event=st.one_of(*KINDS.values()))
def test_an_event_is_read_back_as_it_was_written(event: Event) -> None:
    back = event_from_data(json.loads(json.dumps(event_to_data(event), ensure_ascii=False)))
    assert (type(back), back) == (type(event), event)


def test_an_event_is_short_and_readable() -> None:
    assert event_to_data(ReplicaExited(ReplicaId("worker", 1), 0, 0, Exit(signal=9), 12.5)) == {
        "event": "ReplicaExited",
        "replica": "worker.1",
        "attempt": 0,
        "incarnation": 0,
        "exit": {"signal": 9},
        "at_seconds": 12.5,
    }
    assert event_to_data(StopRequested()) == {"event": "StopRequested"}


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"event": "ReplicaFlew", "replica": "worker.0", "attempt": 0},
        {"event": None},
        {"event": ["RunAccepted"]},
        {"event": "Exit"},
        {"event": "RunAccepted", "by": "me"},
        {"event": "TimerFired", "attempt": 0},
        {"event": "TimerFired", "timer": "start", "attempt": "0"},
        {"event": "TimerFired", "timer": "start", "attempt": True},
        {"event": "TimerFired", "timer": "start", "attempt": 0.5},
        {"event": "TimerFired", "timer": None, "attempt": 0},
        {"event": "StopRequested", "force": 1},
        {"event": "AttemptPlaced", "attempt": 0, "addresses": "host:1"},
        {"event": "AttemptPlaced", "attempt": 0, "addresses": [1]},
        {"event": "ReplicaStarted", "replica": {"role": "worker", "index": 0}, "attempt": 0},
        {"event": "ReplicaStarted", "replica": "boss.0", "attempt": 0},
        {"event": "ReplicaStarted", "replica": "worker.x", "attempt": 0},
        {"event": "ReplicaExited", "replica": "worker.0", "attempt": 0, "incarnation": 0, "exit": 1, "at_seconds": 0},
        {
            "event": "ReplicaExited",
            "replica": "worker.0",
            "attempt": 0,
            "incarnation": 0,
            "exit": {"kode": 1},
            "at_seconds": 0,
        },
        [],
        None,
        "RunAccepted",
    ],
    ids=json.dumps,
)
def test_data_that_is_not_an_event_of_this_version_is_refused(data: Any) -> None:
    with pytest.raises(ValueError, match="not an event of this version"):
        event_from_data(data)


@pytest.mark.parametrize(
    ("data", "event"),
    [
        ({"event": "RunAccepted", "by": "me"}, RunAccepted()),
        ({"event": "TimerFired", "timer": "start", "attempt": 0, "late": {"by": [1]}}, TimerFired("start", 0)),
        (
            {
                "event": "ReplicaExited",
                "replica": "worker.0",
                "attempt": 0,
                "incarnation": 0,
                "exit": {"code": 1, "core": True},
                "at_seconds": 2,
            },
            ReplicaExited(ReplicaId("worker", 0), 0, 0, Exit(1), 2.0),
        ),
    ],
)
def test_a_tolerant_reader_leaves_out_what_a_newer_version_added(data: dict[str, Any], event: Event) -> None:
    assert event_from_data(data, tolerant=True) == event
    with pytest.raises(ValueError, match="is no field of"):
        event_from_data(data)


@pytest.mark.parametrize("data", [{"event": "ReplicaFlew"}, {"event": "TimerFired", "attempt": 0}])
def test_a_tolerant_reader_refuses_what_it_cannot_understand(data: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not an event of this version"):
        event_from_data(data, tolerant=True)


@pytest.mark.parametrize("name", ["LineHung", "GangHung"])
def test_a_renamed_event_is_stored_by_its_first_name_and_read_by_both(name: str) -> None:
    hung = GangHung(1, "no progress for 30m")
    assert event_to_data(hung) == {"event": "LineHung", "attempt": 1, "message": "no progress for 30m"}
    assert event_from_data({**event_to_data(hung), "event": name}) == hung


@pytest.mark.parametrize("kind", [*get_args(Event), Exit, Evidence])
def test_an_absent_field_of_an_event_has_an_empty_default(kind: type[Record]) -> None:
    assert not any(field_defaults(kind).values())  # any other default would change what old journals mean


def test_a_journal_of_the_first_version_is_still_read() -> None:
    lines = [json.loads(text) for text in FIXTURE.read_text().splitlines()]
    worker = ReplicaId("worker", 0)
    for data in lines:
        assert data.pop("v") == 1
        assert {"at", "up", "boot"} <= data.keys()
        for key in ("at", "up", "boot"):
            del data[key]
    events = [event_from_data(data) for data in lines]
    expected: list[Event] = [
        RunAccepted(),
        AttemptDelayed(0, "waits for 2 of 4 cpus, run 3 has 3"),
        RoomFound(0),
        AttemptPlaced(0, ("127.0.0.1:20001", "[::1]:20002")),
        ReplicaStarted(worker, 0, 0, 4711),
        ReplicaStarted(ReplicaId("ps", 0), 0),
        ReplicaExited(worker, 0, 0, Exit(signal=9), 100.25),
        ReplicaExited(ReplicaId("ps", 0), 0, 0, Exit(message="its keeper is gone"), 101.0),
        DelayChosen(1, 1.25),
        TimerFired("delay", 1),
        SupervisorReturned(),
        EngineFailed(1, "no port is free"),
        EngineWarned(1, "no limit is kept"),
        StopRequested(),
        StopRequested(force=True),
        ReplicaExited(worker, 1, 2, Exit(code=0), 200.0),
        SummariesFound(),
        ReplicaStarted(TENSORBOARD, 0, 0, 4712),
        TensorBoardServed("http://127.0.0.1:20003/"),
        FirstStepTaken(0, worker, 60, 99.5),
        FirstStepTaken(1, worker, None, 150.0),
        StopRequested(at_seconds=300.5, preempted=True),
        ResumeRequested(),
        GangHung(1, "no progress for 30m"),
        RendezvousFailed(1, worker, "after 10m worker.0 does not listen on a:1"),
        StacksTaken(1, worker, "worker.0 is in sleep (train.py:3)"),
        StacksTaken(1),
        StepsStalled(1, 30, 350.5, 61.25, worker, "worker.0 is in spin (train.py:3)"),
        StepsStalled(1, None, 350.5, 61.25),
        StepsResumed(1, 31, 500.0),
        ReplicaWaits(worker, 1, 2, "ImagePull", "no such image", is_fatal=True),
        ReplicaExited(worker, 1, 2, Exit(code=0, message="its node is drained", reason="Evicted"), 400.0),
        ProjectCarried(6, 5_700_000),
        CauseNamed(1, Cause(worker, 1, Exit(code=1), "crash", "Exited", "EOFError"), "worker.0: exit code 1, EOFError"),
        CauseNamed(1, Cause(None, 1, Exit(message="x"), "lost", "Unreachable"), "x", is_correction=True),
    ]
    assert [(type(event), event) for event in events] == [(type(event), event) for event in expected]
    assert {type(event) for event in events} == set(KINDS)
