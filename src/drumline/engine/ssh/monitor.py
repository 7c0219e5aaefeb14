"""Detect hosts that are silent, lost or unverified.

On an unverified host, a process may still run that was reported to have ended; these hosts are stored on disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from drumline.engine.agent.errors import MalformedError, RefusedError
from drumline.engine.ssh.connection import HostConnection
from drumline.engine.ssh.helpers import Helpers
from drumline.engine.ssh.plan_options import Hosts
from drumline.engine.ssh.replicas import HOST_LOST, HostReplicas
from drumline.record import Record
from drumline.run.event import Exit
from drumline.run.traces import UNREACHED
from drumline.run.unverified import UnverifiedHost, unverified_from_text, unverified_to_text
from drumline.runtime.keeper import LEFTOVER_GRACE_SECONDS
from drumline.runtime.order import lease_ends_within
from drumline.runtime.private import write_file
from drumline.words import format_duration

CHECK_SECONDS = 0.5  # between two calls of `HostMonitor.check`
_SILENT_SECONDS = 5.0
_REPORT_SECONDS = 60.0  # for a connected host to report the end of a process that it was ordered to kill
_ASLEEP_SECONDS = 3.0  # between two checks: this machine was suspended, or too busy for this process


class HostSilent(Record):
    """A host with replicas has not answered for a while; `warning` describes it."""

    warning: str


class HostLost(Record):
    """A host with replicas is lost; `exit` is the end that is reported for them."""

    host: str
    exit: Exit


class HostMonitor:
    """Watches the connections to all hosts; `lost` and `unverified` are names of hosts."""

    def __init__(
        self,
        run_dir: Path,
        hosts: Hosts,
        connections: Mapping[str, HostConnection],
        replicas: HostReplicas,
        helpers: Helpers,
        moment: float,
    ) -> None:
        self._file = run_dir / UNREACHED
        self._hosts = hosts
        self._connections = connections
        self._replicas = replicas
        self._helpers = helpers
        self._silent: set[str] = set()  # hosts that were reported as silent
        self._checked_at = self._awake_since = moment
        self.lost: set[str] = set()
        known = unverified_from_text(self._file.read_text()) if self._file.exists() else ()
        self.unverified = {each.host for each in known}

    def check(self, moment: float) -> Iterator[HostSilent | HostLost]:
        """Yield hosts that are newly silent or lost; nothing while no host has a replica or a helper."""
        if moment - self._checked_at >= _ASLEEP_SECONDS:
            self._awake_since = moment  # received messages of hosts may not be read yet
        self._checked_at = moment
        used = {host for host in self._connections if self._replicas.of(host) or self._helpers.living(host)}
        for host in self._connections if used else ():
            yield from self._check_host(host, moment, is_used=host in used)

    def _check_host(self, host: str, moment: float, *, is_used: bool) -> Iterator[HostSilent | HostLost]:
        connection = self._connections[host]
        silent = 0.0 if connection.is_up else moment - max(connection.answered_at, self._awake_since)
        if silent >= self._hosts.lost_seconds:
            how = f"has not answered for {format_duration(silent)}"
        elif connection.is_broken:
            how = "is not used any more"
        elif self._is_overdue(host, moment):
            how = f"has not reported the end of killed processes within {format_duration(self._overdue_seconds)}"
        else:
            if silent >= _SILENT_SECONDS and host not in self._silent and is_used:
                self._silent.add(host)
                yield self._describe_silent(host, silent)
            return
        self.lost.add(host)
        if is_used:
            self._silent.add(host)
            self._write_unverified(self.unverified | {host})
            yield self._describe_lost(host, how)

    @property
    def _overdue_seconds(self) -> float:
        """Return the seconds to wait for an end after a kill: longer than until a silent host counts as lost."""
        return self._hosts.lost_seconds + _REPORT_SECONDS

    def _is_overdue(self, host: str, moment: float) -> bool:
        before = moment - self._overdue_seconds
        replicas = any(each.kill_at is not None and each.kill_at < before for each in self._replicas.of(host))
        return replicas or self._helpers.overdue(host, before)

    def _describe_silent(self, host: str, silent: float) -> HostSilent:
        trouble = self._connections[host].trouble
        why = f": {trouble.message}" if trouble else ""
        left = format_duration(self._hosts.lost_seconds - silent, parts=1)
        return HostSilent(
            f"{host} has not answered for {format_duration(silent)}{why}; its replicas continue; it is lost in {left}"
        )

    def _describe_lost(self, host: str, how: str) -> HostLost:
        lease = self._hosts.lease_seconds
        ends = f"; what runs there ends by itself within {format_duration(lease)}" if lease else ""
        trouble = self._connections[host].trouble  # an UnreachableError adds nothing to `how`
        why = f" ({trouble.message})" if isinstance(trouble, RefusedError | MalformedError) else ""
        return HostLost(host, Exit(message=f"the host {host} {how}{why}{ends}", reason=HOST_LOST))

    def note_connected(self, host: str) -> str:
        """Record that a host answers; return a message if it was reported as silent, else ""."""
        was_silent = host in self._silent
        self._silent.discard(host)
        self.lost.discard(host)
        return f"{host} answers again" if was_silent else ""

    def mark_verified(self, host: str) -> None:
        """Record that a host has confirmed that all processes have ended there that were reported as ended."""
        self._write_unverified(self.unverified - {host})

    def note_end(self, utc_seconds: float) -> None:
        """Record that the run is over, and until when processes on unverified hosts may run, by their lease.

        The last lease may be renewed up to `lost` after now: an agent waits so long for a silent connection.
        """
        lease = self._hosts.lease_seconds
        if lease is not None and self.unverified:
            until = utc_seconds + self._hosts.lost_seconds + lease_ends_within(lease) + LEFTOVER_GRACE_SECONDS
            write_file(self._file, unverified_to_text(UnverifiedHost(host, until) for host in self.unverified).encode())

    def _write_unverified(self, hosts: set[str]) -> None:
        if hosts != self.unverified:
            self.unverified = hosts
            write_file(self._file, unverified_to_text(map(UnverifiedHost, hosts)).encode())
        if not hosts:
            self._file.unlink(missing_ok=True)
