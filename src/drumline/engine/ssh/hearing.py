"""What a run's hosts say, and what of it is believed: each only about what it was given.

Whatever a host says of replicas of other hosts, or of attempts in which it has no part, is dropped, and the user is
told once that it does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, assert_never

from drumline.engine.incarnation import Incarnation
from drumline.engine.protocol import Tell
from drumline.engine.ssh.allowance import Allowance
from drumline.engine.ssh.helpers import Helpers
from drumline.engine.ssh.link import Link
from drumline.engine.ssh.news import Happened, LogPiece, News, SmallFile
from drumline.engine.ssh.replicas import HostReplicas, by_our_clock
from drumline.run.event import (
    AttemptDelayed,
    EngineFailed,
    EngineWarned,
    ReplicaExited,
    ReplicaStarted,
    RoomFound,
)
from drumline.run.usage import Usage

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

_FOREIGN = "speaks of replicas or attempts that it was not given; that is ignored"


class Hearing:
    """Takes what hosts say, and passes on what is theirs to say.

    `end` is called with every end that a host may report. `takes_part` says whether a host may have replicas in the
    attempt that is current, `room` is called when a host has room for it, and `was_given`
    says whether an earlier supervisor gave a replica to a host.
    """

    attempt = 0  # the current one

    def __init__(
        self,
        links: Mapping[str, Link],
        known: tuple[HostReplicas, Helpers],
        loop: AbstractEventLoop,
        tell: Tell,
        *,
        end: Callable[[ReplicaExited, Usage | None], None],
        takes_part: Callable[[str], bool],
        was_given: Callable[[Incarnation, str], bool],
        room: Callable[[RoomFound], None],
        warn: Callable[[str], None],
    ) -> None:
        self._links = links
        self._lives, self._helpers = known
        self._loop = loop
        self._tell = tell
        self._pass_end = end
        self._takes_part = takes_part
        self._was_given = was_given
        self._room = room
        self._warn = warn
        self._allowances: dict[str, Allowance] = {}
        self._delayed: set[tuple[str, RoomFound]] = set()
        self._warned: set[tuple[str, str]] = set()

    def hear(self, host: str, news: News) -> None:
        """Deal with what a host says."""
        match news:
            case LogPiece() | SmallFile():
                self._write(host, news)
            case Happened():
                self._happen(host, news)
            case _:
                assert_never(news)

    def foreign(self, host: str, life: Incarnation) -> None:
        """Warn once that a host speaks of a replica that it was not given; one of an earlier supervisor is not told."""
        if (host, _FOREIGN) not in self._warned and not self._was_given(life, host):
            self._warn_once(host, _FOREIGN)

    def find_room(self, host: str, event: RoomFound) -> None:
        """Have an attempt placed that waits for room; not more often than a host may, but never not at all."""
        if self._is_current(host, event.attempt) and (host, event) not in self._delayed:
            if seconds := self._allowance(host).take(self._loop.time()):
                self._delayed.add((host, event))
                self._loop.call_later(seconds, partial(self._find_room_later, host, event))
            else:
                self._room(event)

    def _find_room_later(self, host: str, event: RoomFound) -> None:
        self._delayed.discard((host, event))
        self.find_room(host, event)

    def _write(self, host: str, news: LogPiece | SmallFile) -> None:
        if kept := self._lives.given(news.life, host):
            self._lives.write(kept, news)
        elif helper := self._helpers.given(news.life, host):
            if isinstance(news, LogPiece):
                self._helpers.write(host, helper, news)
        else:
            self.foreign(host, news.life)

    def _happen(self, host: str, news: Happened) -> None:
        match news.event:
            case ReplicaStarted() | ReplicaExited() as event if event.replica.is_helper:
                self._happen_to_helper(host, event)
            case ReplicaStarted() as event:
                if kept := self._lives.given(Incarnation.of(event), host):
                    self._lives.started(kept, event)
                else:
                    self.foreign(host, Incarnation.of(event))
            case ReplicaExited() as event:
                self._end(host, event, news)
            case RoomFound() as event:
                self.find_room(host, event)
            case AttemptDelayed() | EngineFailed() | EngineWarned() as event:
                if self._is_current(host, event.attempt) and self._is_allowed(host):
                    self._tell(event.replace(message=f"{host}: {event.message}"))
            case _:
                assert_never(news.event)

    def _happen_to_helper(self, host: str, event: ReplicaStarted | ReplicaExited) -> None:
        helper = self._helpers.given(Incarnation.of(event), host)
        if helper is None:
            self.foreign(host, Incarnation.of(event))
        elif isinstance(event, ReplicaStarted):
            self._helpers.started(helper, event)
        else:
            self._helpers.ended(host, helper, event)

    def _end(self, host: str, event: ReplicaExited, news: Happened) -> None:
        life, skew = Incarnation.of(event), self._links[host].skew_seconds
        if not self._lives.given(life, host):
            self.foreign(host, life)
            return
        usage = news.usage
        if usage and Incarnation.of(usage) != life:
            self._warn_once(host, _FOREIGN)
            usage = None
        at = min(max(0.0, event.at_seconds - skew), self._loop.time())  # whatever its clock says, it is over by now
        self._pass_end(event.replace(at_seconds=at), by_our_clock(usage, skew) if usage else None)

    def _is_current(self, host: str, attempt: int) -> bool:
        """Whether a host may speak of this attempt; what it says late, of one that is over, is only dropped."""
        if attempt == self.attempt and self._takes_part(host):
            return True
        if attempt == 0 and self._helpers.living(host):
            return True
        if attempt >= self.attempt:
            self._warn_once(host, _FOREIGN)
        return False

    def _is_allowed(self, host: str) -> bool:
        if not self._allowance(host).take(self._loop.time()):
            return True
        self._warn_once(host, "has more to say than is written down; some of it is left out")
        return False

    def _allowance(self, host: str) -> Allowance:
        return self._allowances.setdefault(host, Allowance(self._loop.time()))

    def _warn_once(self, host: str, message: str) -> None:
        if (host, message) not in self._warned:
            self._warned.add((host, message))
            self._warn(f"{host} {message}")
