"""Accept reports of hosts: each only about its own replicas.

Reports about replicas of other hosts, or about attempts in which a host has no part, are dropped with one warning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, assert_never

from drumline.engine.protocol import ReportEvent
from drumline.engine.ssh.attempt_placements import AttemptPlacements
from drumline.engine.ssh.connection import HostConnection
from drumline.engine.ssh.event_quota import EventQuota
from drumline.engine.ssh.helpers import Helpers, PartEnded
from drumline.engine.ssh.inbox import Inbox, Received
from drumline.engine.ssh.replicas import HostReplica, HostReplicas, by_our_clock
from drumline.engine.ssh.reports import EventReport, LogPiece, Report, SmallFile
from drumline.record import Record
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
from drumline.run.usage import Usage

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

_FOREIGN = "reports replicas or attempts that it was not ordered to start; these reports are ignored"


class ReplicaEnded(Record):
    """The reported end of a replica on a host, by the clock of this machine."""

    replica: HostReplica
    exit: Exit
    at_seconds: float
    usage: Usage | None


class Receiver:
    """Checks reports and handles logs and starts; ends, and free resources for an attempt, are left to the session."""

    def __init__(
        self,
        connections: Mapping[str, HostConnection],
        replicas: HostReplicas,
        helpers: Helpers,
        places: AttemptPlacements,
        inbox: Inbox,
        loop: AbstractEventLoop,
        report: ReportEvent,
    ) -> None:
        self._connections = connections
        self._replicas = replicas
        self._helpers = helpers
        self._places = places
        self._inbox = inbox
        self._loop = loop
        self._report = report
        self._quotas: dict[str, EventQuota] = {}
        self._delayed: set[tuple[str, RoomFound]] = set()
        self._warned: set[tuple[str, str]] = set()

    def receive(self, host: str, report: Report) -> ReplicaEnded | PartEnded | RoomFound | None:
        """Handle a report; return an end or free resources, which the session has to handle, else None."""
        match report:
            case LogPiece() | SmallFile():
                self._write(host, report)
                return None
            case EventReport():
                return self._take_event(host, report)
            case _:
                assert_never(report)

    def is_ordered(self, host: str, incarnation: Incarnation) -> bool:
        """Return whether a host was ordered to start a replica; warn if not."""
        if self._replicas.find_ordered(incarnation, host):
            return True
        self._warn_foreign(host, incarnation)
        return False

    def _write(self, host: str, report: LogPiece | SmallFile) -> None:
        if replica := self._replicas.find_ordered(report.incarnation, host):
            self._replicas.write(replica, report)
        elif helper := self._helpers.find_ordered(report.incarnation, host):
            if isinstance(report, LogPiece):
                self._helpers.write(host, helper, report)
        else:
            self._warn_foreign(host, report.incarnation)

    def _take_event(self, host: str, report: EventReport) -> ReplicaEnded | PartEnded | RoomFound | None:
        match report.event:
            case ReplicaStarted() | ReplicaExited() as event if event.replica.is_helper:
                return self._take_helper_event(host, event)
            case ReplicaStarted() as event:
                incarnation = Incarnation.of(event)
                if self.is_ordered(host, incarnation):
                    self._replicas.started(self._replicas.tracker.find(incarnation), event)
            case ReplicaExited() as event:
                return self._end(host, event, report.usage)
            case RoomFound() as event:
                return self._find_room(host, event)
            case AttemptDelayed() | EngineFailed() | EngineWarned() as event:
                if self._is_current(host, event.attempt) and self._is_allowed(host):
                    self._report(event.replace(message=f"{host}: {event.message}"))
            case _:
                assert_never(report.event)
        return None

    def _take_helper_event(self, host: str, event: ReplicaStarted | ReplicaExited) -> PartEnded | None:
        helper = self._helpers.find_ordered(Incarnation.of(event), host)
        if helper is None:
            self._warn_foreign(host, Incarnation.of(event))
        elif isinstance(event, ReplicaStarted):
            self._helpers.started(helper, event)
        else:
            return self._helpers.end_part(helper, host, event.exit)
        return None

    def _end(self, host: str, event: ReplicaExited, usage: Usage | None) -> ReplicaEnded | None:
        incarnation, skew = Incarnation.of(event), self._connections[host].skew_seconds
        if not self.is_ordered(host, incarnation):
            return None
        if usage and Incarnation.of(usage) != incarnation:
            self._warn_once(host, _FOREIGN)
            usage = None
        at = min(max(0.0, event.at_seconds - skew), self._loop.time())  # not in the future, if the clocks differ
        replica = self._replicas.tracker.find(incarnation)
        return ReplicaEnded(replica, event.exit, at, by_our_clock(usage, skew) if usage else None)

    def _find_room(self, host: str, event: RoomFound) -> RoomFound | None:
        """Return a report of free resources within the host's quota; one above it is received again later, once."""
        if not self._is_current(host, event.attempt) or (host, event) in self._delayed:
            return None
        if seconds := self._quota(host).take(self._loop.time()):
            self._delayed.add((host, event))
            self._loop.call_later(seconds, self._receive_again, host, event)
            return None
        return event

    def _receive_again(self, host: str, event: RoomFound) -> None:
        self._delayed.discard((host, event))
        self._inbox.put_nowait(Received(host, EventReport(event)))

    def _is_current(self, host: str, attempt: int) -> bool:
        """Return whether a host takes part in the attempt of a report; warn if not, except about an earlier attempt."""
        if attempt == self._places.attempt and self._places.takes_part(host):
            return True
        if attempt == 0 and self._helpers.living(host):
            return True
        if attempt >= self._places.attempt:
            self._warn_once(host, _FOREIGN)
        return False

    def _is_allowed(self, host: str) -> bool:
        if not self._quota(host).take(self._loop.time()):
            return True
        self._warn_once(host, "reports more events than are recorded; some of them are left out")
        return False

    def _quota(self, host: str) -> EventQuota:
        return self._quotas.setdefault(host, EventQuota(self._loop.time()))

    def _warn_foreign(self, host: str, incarnation: Incarnation) -> None:
        """Warn once that a host reports a replica that no supervisor of the run has ordered it to start."""
        if not self._replicas.was_ordered(incarnation, host):
            self._warn_once(host, _FOREIGN)

    def _warn_once(self, host: str, message: str) -> None:
        if (host, message) not in self._warned:
            self._warned.add((host, message))
            self._report(EngineWarned(self._places.attempt, f"{host} {message}"))
