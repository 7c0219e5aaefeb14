"""Looking out for hosts that fall silent: first they are worried about, then they are lost, and they may come back.

Which hosts are in doubt, since something may run there that was told to have ended, is on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from drumline.engine.agent.errors import MalformedError, RefusedError
from drumline.engine.ssh.helpers import Helpers
from drumline.engine.ssh.link import Link
from drumline.engine.ssh.planned import Hosts
from drumline.engine.ssh.replicas import HOST_LOST, HostReplicas
from drumline.run.doubt import Doubt, doubts_from_text, doubts_to_text
from drumline.run.event import Exit
from drumline.run.traces import UNREACHED
from drumline.runtime.keeper import LEFTOVER_GRACE_SECONDS
from drumline.runtime.order import lease_ends_within
from drumline.runtime.private import write_file
from drumline.words import span

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

_LOOK_SECONDS = 0.5
_WORRY_SECONDS = 5.0
_REPORT_SECONDS = 60.0  # for a host that answers, to say that a process is gone that it was told to kill
_ASLEEP_SECONDS = 3.0  # between two looks: this machine was suspended, or had no time for us


class Lookout:
    """Knows which hosts are silent, which lost, and which in doubt."""

    def __init__(
        self,
        run_dir: Path,
        hosts: Hosts,
        links: Mapping[str, Link],
        tracked: tuple[HostReplicas, Helpers],
        loop: AbstractEventLoop,
        warn: Callable[[str], None],
    ) -> None:
        self._file = run_dir / UNREACHED
        self._hosts = hosts
        self._links = links
        self._lives, self._helpers = tracked
        self._loop = loop
        self._warn = warn
        self._worried: set[str] = set()
        self._is_looking = False
        self._looked_at = self._awake_since = loop.time()
        self.lost: set[str] = set()
        known = doubts_from_text(self._file.read_text()) if self._file.exists() else ()
        self.doubtful = {doubt.host for doubt in known}

    def look(self) -> None:
        """See now and then whether every host answers, for as long as somebody may be there."""
        if not self._is_looking:
            self._is_looking = True
            self._looked_at = self._loop.time()
            self._loop.call_later(_LOOK_SECONDS, self._look_again)

    def _look_again(self) -> None:
        self._is_looking = False
        moment = self._loop.time()
        if moment - self._looked_at >= _ASLEEP_SECONDS:
            self._awake_since = moment  # hosts may have said something, and nobody has heard it yet
        for host, link in self._links.items():
            silent = 0.0 if link.is_up else moment - max(link.answered_at, self._awake_since)
            if silent >= self._hosts.lost_seconds:
                self._lose(host, f"has not answered for {span(silent)}")
            elif link.is_broken:
                self._lose(host, "is not used any more")
            elif self._is_overdue(host, moment):
                self._lose(host, f"has not reported the end of what was killed within {span(self._overdue_seconds)}")
            elif silent >= _WORRY_SECONDS and host not in self._worried and self._is_used(host):
                self._worry(host, silent)
        if any(each.end is None for each in self._lives) or any(self._helpers.folders()):
            self.look()

    @property
    def _overdue_seconds(self) -> float:
        """How long after a kill its end is waited for: a host may be away, but no longer than until it is lost."""
        return self._hosts.lost_seconds + _REPORT_SECONDS

    def _is_overdue(self, host: str, moment: float) -> bool:
        before = moment - self._overdue_seconds
        lives = any(each.kill_at is not None and each.kill_at < before for each in self._lives.of(host))
        return lives or self._helpers.overdue(host, before)

    def _is_used(self, host: str) -> bool:
        return bool(self._lives.of(host) or self._helpers.living(host))

    def _worry(self, host: str, silent: float) -> None:
        self._worried.add(host)
        trouble = self._links[host].trouble
        why = f": {trouble.message}" if trouble else ""
        left = span(self._hosts.lost_seconds - silent, parts=1)
        self._warn(f"{host} has not answered for {span(silent)}{why}; its replicas go on, and in {left} it is lost")

    def _lose(self, host: str, how: str) -> None:
        self.lost.add(host)
        if self._is_used(host):
            lease = self._hosts.lease_seconds
            ends = f"; whatever runs there ends by itself within {span(lease)}" if lease else ""
            self._worried.add(host)
            self._doubt(self.doubtful | {host})
            trouble = self._links[host].trouble  # one that is only away has no more to say
            why = f" ({trouble.message})" if isinstance(trouble, RefusedError | MalformedError) else ""
            end = Exit(message=f"the host {host} {how}{why}{ends}", reason=HOST_LOST)
            self._helpers.lose(host, end)
            self._lives.lose(host, end)

    def found(self, host: str) -> None:
        """It answers."""
        if host in self._worried:
            self._warn(f"{host} answers again")
        self._worried.discard(host)
        self.lost.discard(host)

    def is_clear(self, host: str) -> None:
        """It has said that nobody lives there who should not."""
        self._doubt(self.doubtful - {host})

    def leave(self, wall: float) -> None:
        """Nobody speaks to a host from now on: note by when whatever lives on those in doubt has ended by its lease.

        What was said last may be on its way for as long as a hand there listens to a silent line.
        """
        lease = self._hosts.lease_seconds
        if lease is not None and self.doubtful:
            until = wall + self._hosts.lost_seconds + lease_ends_within(lease) + LEFTOVER_GRACE_SECONDS
            write_file(self._file, doubts_to_text(Doubt(host, until) for host in self.doubtful).encode())

    def _doubt(self, hosts: set[str]) -> None:
        if hosts != self.doubtful:
            self.doubtful = hosts
            write_file(self._file, doubts_to_text(map(Doubt, hosts)).encode())
        if not hosts:
            self._file.unlink(missing_ok=True)
