"""Reports of an agent as types: pieces of logs, small files, and events of its replicas."""

from __future__ import annotations

from typing import Any

from drumline.engine.agent.frames import Frame
from drumline.engine.agent.launches import incarnation_from_text
from drumline.engine.untrusted import clean_text, load_record, require_within
from drumline.record import Record
from drumline.run.codec import event_from_data
from drumline.run.event import (
    AttemptDelayed,
    EngineFailed,
    EngineWarned,
    Exit,
    ReplicaExited,
    ReplicaStarted,
    RoomFound,
)
from drumline.run.incarnation import Incarnation
from drumline.run.traces import ERROR, REPORT, STACKS
from drumline.run.usage import Usage

HostEvent = ReplicaStarted | ReplicaExited | RoomFound | AttemptDelayed | EngineFailed | EngineWarned

_FILES = (REPORT, ERROR, STACKS)
_REASONS = ("", "LeaseOver")  # the reasons that a keeper records; this machine finds all others
_NOTE_CHARS = 200
_MOST_PID = (1 << 31) - 1


class LogPiece(Record):
    """Bytes of a replica's log, and their offset in it."""

    incarnation: Incarnation
    at: int
    data: bytes


class SmallFile(Record):
    """A file beside a replica's log."""

    incarnation: Incarnation
    name: str
    data: bytes


class EventReport(Record):
    """An event; one about an exit may come with the usage of the replica."""

    event: HostEvent
    usage: Usage | None = None


Report = LogPiece | SmallFile | EventReport


def read_report(frame: Frame) -> Report:
    """Return the report in a frame; raise ValueError for anything else."""
    match frame.message:
        case {"do": "event", "event": dict(event), **rest}:
            usage = rest.pop("usage", None)
            _require_nothing(rest)
            return EventReport(_read_event(event), None if usage is None else load_record(Usage, usage))
        case {"do": "log", "incarnation": str(incarnation), "at": int(at), **rest} if type(at) is int:
            _require_nothing(rest)
            return LogPiece(incarnation_from_text(incarnation), at, frame.data)
        case {"do": "file", "incarnation": str(incarnation), "name": str(name), **rest} if name in _FILES:
            _require_nothing(rest)
            return SmallFile(incarnation_from_text(incarnation), name, frame.data)
    raise ValueError(f"an unknown message: {str(frame.message)[:100]}")


def _require_nothing(rest: dict[str, Any]) -> None:
    if rest.keys() - {"bytes"}:
        raise ValueError(f"a message with {str(rest)[:100]}")


def _read_event(data: dict[str, Any]) -> HostEvent:
    event = event_from_data(data)
    match event:
        case ReplicaStarted():
            require_within(event.pid, 2, _MOST_PID)
            return event.replace(note=clean_text(event.note, _NOTE_CHARS))
        case ReplicaExited():
            if event.evidence is not None:
                raise ValueError("evidence is found here, and not sent")
            return event.replace(exit=_check_exit(event.exit))
        case RoomFound():
            return event
        case AttemptDelayed() | EngineFailed() | EngineWarned():
            return event.replace(message=clean_text(event.message))
    raise ValueError(f"{type(event).__name__} is not an event of a host")


def _check_exit(end: Exit) -> Exit:
    require_within(end.code, 0, 255)
    require_within(end.signal, 1, 64)
    if end.reason not in _REASONS:
        raise ValueError(f"the reason {end.reason[:50]!r}")
    return end.replace(message=clean_text(end.message))
