"""Send logs, reports and events of replicas on this host to the supervisor: each byte once and in order.

The end of a replica is sent after its whole log, and ends are sent in their order.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drumline.engine.agent.launches import incarnation_to_text
from drumline.run.codec import event_to_data
from drumline.run.event import Event, ReplicaExited
from drumline.run.incarnation import Incarnation
from drumline.run.traces import ERROR, LOG, REPORT

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

_POLL_SECONDS = 0.1
_PIECE_BYTES = 1 << 17
_MOST_SMALL_BYTES = 1 << 16  # of a report file, or of a recorded exception

Write = Callable[[dict[str, Any], bytes], None]


class _Followed:
    """An incarnation with a log that is sent, and the number of bytes sent so far."""

    def __init__(self, folder: Path, offset: int) -> None:
        self.folder = folder
        self.offset = offset
        self.reported = 0  # the modification time of the last report that was sent


class LogFollower:
    """Sends logs, reports and events; logs wait while `is_busy` returns True."""

    def __init__(self, run_dir: Path, loop: AbstractEventLoop, write: Write, is_busy: Callable[[], bool]) -> None:
        self._run_dir = run_dir
        self._loop = loop
        self._write = write
        self._is_busy = is_busy
        self._followed: dict[Incarnation, _Followed] = {}
        self._events: deque[tuple[Event, dict[str, Any]]] = deque()  # each with the data that is sent with it
        self._is_waiting = False

    def follow(self, incarnation: Incarnation, offset: int) -> None:
        """Send the log of this incarnation from this offset on."""
        self._followed.setdefault(incarnation, _Followed(self._run_dir / incarnation.folder, offset))
        self._wait()

    def send_event(self, event: Event, **more: Any) -> None:
        """Send an event with more data about it, after all earlier events and the log before it."""
        self._events.append((event, more))
        self.send_new()

    def send_new(self) -> None:
        """Send new parts of logs, changed reports, and events that need not wait for a log."""
        for incarnation, followed in self._followed.items():
            self._pump(incarnation, followed)
            self._report(incarnation, followed)
        while self._events and self._may_send(self._events[0][0]):
            event, more = self._events.popleft()
            if isinstance(event, ReplicaExited):
                self._conclude(Incarnation.of(event))
            self._write({"do": "event", "event": event_to_data(event), **more}, b"")
        self._wait()

    def _wait(self) -> None:
        if not self._is_waiting and (self._followed or self._events):
            self._is_waiting = True
            self._loop.call_later(_POLL_SECONDS, self._send_again)

    def _send_again(self) -> None:
        self._is_waiting = False
        self.send_new()

    def _may_send(self, event: Event) -> bool:
        if not isinstance(event, ReplicaExited):
            return True
        incarnation = Incarnation.of(event)
        followed = self._followed.get(incarnation)
        return followed is None or followed.offset >= _size(followed.folder / LOG)

    def _pump(self, incarnation: Incarnation, followed: _Followed) -> None:
        """Send the new part of a log, in pieces, until too much is unsent."""
        path = followed.folder / LOG
        while _size(path) > followed.offset and not self._is_busy():
            with suppress(OSError), path.open("rb") as log:
                log.seek(followed.offset)
                data = log.read(_PIECE_BYTES)
                self._write({"do": "log", "incarnation": incarnation_to_text(incarnation), "at": followed.offset}, data)
                followed.offset += len(data)
                continue
            return

    def _report(self, incarnation: Incarnation, followed: _Followed) -> None:
        with suppress(OSError):
            written = os.stat(followed.folder / REPORT).st_mtime_ns  # noqa: PTH116 - it is called often
            if written != followed.reported:
                followed.reported = written
                self._send_file(incarnation, followed.folder / REPORT)

    def _conclude(self, incarnation: Incarnation) -> None:
        followed = self._followed.pop(incarnation, None)
        if followed:
            self._report(incarnation, followed)
            self._send_file(incarnation, followed.folder / ERROR)

    def _send_file(self, incarnation: Incarnation, path: Path) -> None:
        with suppress(OSError):
            data = path.read_bytes()[:_MOST_SMALL_BYTES]
            self._write({"do": "file", "incarnation": incarnation_to_text(incarnation), "name": path.name}, data)


def _size(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_size
    return 0
