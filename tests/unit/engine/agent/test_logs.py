"""Logs and exits that an agent sends: each byte once, from the requested offset; an exit after its log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from drumline.engine.agent.logs import LogFollower
from drumline.plan.types import ReplicaId
from drumline.run.event import Exit, ReplicaExited, ReplicaStarted
from drumline.run.incarnation import Incarnation
from scaffold.loops import SimulatedTimeLoop

INCARNATION = Incarnation(ReplicaId("worker", 0), 0)
END = ReplicaExited(INCARNATION.replica, 0, 0, Exit(code=0), 1.0)


class Listener:
    """The receiver of the messages, which may be slow."""

    def __init__(self, run_dir: Path) -> None:
        self.heard: list[tuple[str, bytes]] = []
        self.is_slow = False
        self.folder = run_dir / INCARNATION.folder
        self.folder.mkdir(parents=True)
        self.follower = LogFollower(run_dir, SimulatedTimeLoop(), self._hear, lambda: self.is_slow)

    def _hear(self, message: dict[str, Any], data: bytes) -> None:
        what = message["event"]["event"] if message["do"] == "event" else message.get("name", message["do"])
        self.heard.append((what, data))


def test_a_log_is_sent_from_the_requested_offset_and_each_byte_once(tmp_path: Path) -> None:
    listener = Listener(tmp_path)
    log = listener.folder / "log"
    log.write_bytes(b"one\ntwo\n")
    listener.follower.follow(INCARNATION, 4)
    listener.follower.send_new()
    with log.open("ab") as file:
        file.write(b"three\n")
    listener.follower.send_new()
    listener.follower.send_new()
    assert listener.heard == [("log", b"two\n"), ("log", b"three\n")]


def test_an_exit_is_sent_after_its_whole_log_and_later_events_after_it(tmp_path: Path) -> None:
    listener = Listener(tmp_path)
    listener.follower.follow(INCARNATION, 0)
    listener.is_slow = True
    (listener.folder / "log").write_bytes(b"last words\n")
    listener.follower.send_event(END)
    listener.follower.send_event(ReplicaStarted(ReplicaId("worker", 1), 0))
    assert listener.heard == []
    listener.is_slow = False
    listener.follower.send_new()
    assert listener.heard == [("log", b"last words\n"), ("ReplicaExited", b""), ("ReplicaStarted", b"")]


def test_reports_are_sent_when_they_change_and_the_exception_with_the_exit(tmp_path: Path) -> None:
    listener = Listener(tmp_path)
    listener.follower.follow(INCARNATION, 0)
    (listener.folder / "report").write_bytes(b"step 1")
    listener.follower.send_new()
    listener.follower.send_new()
    (listener.folder / "error").write_bytes(b"ValueError")
    listener.follower.send_event(END)
    assert listener.heard == [("report", b"step 1"), ("error", b"ValueError"), ("ReplicaExited", b"")]


def test_the_exit_of_a_replica_that_is_not_followed_is_sent_at_once(tmp_path: Path) -> None:
    listener = Listener(tmp_path)
    listener.follower.send_event(END)
    assert listener.heard == [("ReplicaExited", b"")]
