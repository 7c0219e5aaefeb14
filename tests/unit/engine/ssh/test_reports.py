"""A report of a host is a piece of a log, a small file or an event of a host; anything else is refused."""

from __future__ import annotations

from typing import Any

import pytest

from drumline.engine.agent.frames import Frame
from drumline.engine.ssh.reports import EventReport, LogPiece, SmallFile, read_report
from drumline.plan.types import ReplicaId
from drumline.run.codec import event_to_data
from drumline.run.event import (
    AttemptPlaced,
    EngineFailed,
    Exit,
    ReplicaExited,
    ReplicaStarted,
    RoomFound,
    StopRequested,
)
from drumline.run.incarnation import Incarnation

WORKER = ReplicaId("worker", 0)
INCARNATION = Incarnation(WORKER, 1)


def exited(**fields: object) -> dict[str, Any]:
    event = {"event": "ReplicaExited", "replica": "worker.0", "attempt": 0, "incarnation": 0, "at_seconds": 1.0}
    return {"do": "event", "event": {**event, "exit": {"code": 1}, **fields}}


def test_valid_reports_are_read() -> None:
    room = {"do": "event", "event": event_to_data(RoomFound(0)), "usage": None}
    assert read_report(Frame(room)) == EventReport(RoomFound(0))
    log = {"do": "log", "incarnation": "worker.0 1 0", "at": 5, "bytes": 3}
    assert read_report(Frame(log, b"abc")) == LogPiece(INCARNATION, 5, b"abc")
    for name in ("report", "error", "stacks"):
        file = {"do": "file", "incarnation": "worker.0 1 0", "name": name}
        assert read_report(Frame(file, b"x")) == SmallFile(INCARNATION, name, b"x")


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"do": "event", "event": {"event": "Nothing"}},
        {"do": "event", "event": []},
        {"do": "event", "event": {"event": ["ReplicaExited"]}},
        exited(attempt="0"),
        exited(attempt=True),
        exited(exit={"code": 256}),
        exited(exit={"code": -1}),
        exited(exit={"signal": 0}),
        exited(exit={"signal": 100}),
        exited(exit={"code": 1, "reason": "HostLost"}),
        exited(exit={"code": 1, "reason": "Preempted"}),
        exited(evidence={"said": "it was worker.1"}),
        exited(replica="worker.0/../.."),
        {"do": "event", "event": event_to_data(ReplicaStarted(WORKER, 0, pid=1))},
        {"do": "event", "event": event_to_data(ReplicaStarted(WORKER, 0, pid=1 << 40))},
        {"do": "event", "event": event_to_data(StopRequested())},
        {"do": "event", "event": event_to_data(AttemptPlaced(0, ("a:1",)))},
        {"do": "event", "event": {"event": "RoomFound", "attempt": 0}, "usage": {"cpu": 1}},
        {"do": "log", "incarnation": "worker.0", "at": 0},
        {"do": "log", "incarnation": "worker.0 0 ²", "at": 0},
        {"do": "log", "incarnation": "worker.0 0 0", "at": "0"},
        {"do": "log", "incarnation": "worker.0 0 0", "at": True},
        {"do": "log", "incarnation": ["worker.0"], "at": 0},
        {"do": "file", "incarnation": "worker.0 0 0", "name": "keeper"},
        {"do": "file", "incarnation": "worker.0 0 0", "name": "../../events.jsonl"},
        {"do": "file", "incarnation": "worker.0 0 0", "name": ["report"]},
        {"do": "dance", "incarnation": "worker.0 0 0"},
        {"do": "log", "incarnation": "worker.0 0 0", "at": 0, "more": 1},
    ],
    ids=str,
)
def test_invalid_reports_are_refused(message: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r".*"):
        read_report(Frame(message))


def test_long_messages_are_truncated() -> None:
    words = "x" * 1_000_000
    for event in (
        EngineFailed(0, words),
        ReplicaStarted(WORKER, 0, note=words),
        ReplicaExited(WORKER, 0, 0, Exit(message=words), 1.0),
    ):
        report = read_report(Frame({"do": "event", "event": event_to_data(event)}))
        assert len(str(report)) < 3000
