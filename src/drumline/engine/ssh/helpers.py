"""The helpers of a run. A helper runs on all hosts at the same time; it is reported as one, with the logs of all hosts.

Each host has its own environment and data folders, unless hosts share a folder; then one host makes them, and the
others find them. The first failure ends the helper on all hosts. A host that connects later runs the same helpers.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drumline.engine.notes import End, read_end
from drumline.engine.protocol import ReportEvent
from drumline.engine.ssh.helper import Helper, HelperPart
from drumline.engine.ssh.reports import LogPiece
from drumline.engine.tracker import NEVER_STARTED, ReplicaTracker
from drumline.errors import EngineError
from drumline.plan.types import Plan, ReplicaId, Value
from drumline.record import Record
from drumline.run.event import Exit, ReplicaStarted
from drumline.run.failure import describe_exit
from drumline.run.incarnation import Incarnation
from drumline.run.traces import LOG
from drumline.runtime.private import open_file

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop


class PartEnded(Record):
    """A helper has ended on one host."""

    host: str
    exit: Exit
    is_late: bool = False  # it started after the end on all other hosts was reported
    to_stop: frozenset[str] = frozenset()  # other hosts, on which it has to stop


class Helpers:
    """Stores the helpers of one run, by name in the order in which they run; reports their starts and ends."""

    def __init__(
        self, run_dir: Path, loop: AbstractEventLoop, report: ReportEvent, names: Sequence[ReplicaId] = ()
    ) -> None:
        self._run_dir = run_dir
        self._loop = loop
        self._tracker = ReplicaTracker(run_dir, Helper, loop, report)
        self._names = names
        for done in self._recall():
            self._tracker.find(done)

    def begin(self, incarnation: Incarnation, hosts: Sequence[str]) -> Sequence[str]:
        """Record that a helper begins on these hosts, or on its hosts of an earlier supervisor.

        Return the hosts to which the project has to be sent before the helper starts there.
        """
        helper = self._tracker.find(incarnation)
        if not helper.has_begun:
            helper.has_begun = True
            helper.parts = {host: HelperPart(helper.folder, host) for host in hosts}
            helper.note_hosts(hosts)
        self._tracker.ask([incarnation])
        return [] if helper.end else [host for host in helper.parts if host not in helper.plans]

    def has_begun(self, incarnation: Incarnation) -> bool:
        """Return whether `begin` was called for a helper, by this supervisor or an earlier one."""
        return (self._tracker.get(incarnation) or Helper(incarnation, self._run_dir / incarnation.folder)).has_begun

    def join(self, host: str) -> Incarnation | None:
        """Return the next helper that has to run on a host that was not connected before; None if there is none now."""
        for helper in self._latest():
            if helper.is_done_on(host):
                continue
            if host in helper.parts or (helper.end and not helper.end.exit.ok):
                return None  # it runs there now, or has failed
            part = helper.parts[host] = HelperPart(helper.folder, host)
            part.is_late = helper.end is not None
            if not part.is_late:
                helper.note_hosts(helper.parts)
            return helper.id
        return None

    def unready(self, host: str) -> str:
        """Return why a host that connected late is not prepared yet; "" if it is."""
        for helper in self._latest():
            if helper.end and helper.end.exit.ok and not helper.is_done_on(host):
                part, name = helper.parts.get(host), helper.id.replica
                failed = f": {describe_exit(part.exit)}" if part and part.exit else ""
                return f"{name} is not done on {host}, which was not connected when it began{failed}"
        return ""

    def has_failed(self, host: str) -> bool:
        """Return whether a helper has failed on a host that connected late."""
        parts = [helper.parts[host] for helper in self._latest() if host in helper.parts]
        return any(part.is_late and part.exit and not part.exit.ok for part in parts)

    def _latest(self) -> list[Helper]:
        """Return the last incarnation of each helper that was started."""
        begun = [helper for helper in self._tracker if helper.has_begun]
        last = {helper.id.replica: helper for helper in sorted(begun, key=lambda each: each.id.incarnation)}
        return [last[name] for name in self._names if name in last]

    def go(self, incarnation: Incarnation, host: str, plan: str) -> bool:
        """Record that a helper may start on this host, with this plan; return whether it may start on all hosts now."""
        helper = self._tracker.find(incarnation)
        helper.plans[host] = plan
        helper.parts[host].may_start = True
        return all(part.may_start for part in helper.parts.values())

    def fail(self, incarnation: Incarnation, message: str) -> None:
        """Report that a helper cannot start on any host."""
        for helper in self._tracker.ask([incarnation]):
            self._end(helper, Exit(message=message))

    def refuse(self, incarnation: Incarnation, host: str, message: str) -> PartEnded | None:
        """Record that a helper cannot start on this host."""
        return self.end_part(self._tracker.find(incarnation), host, Exit(message=message))

    def stop(self, incarnation: Incarnation, grace_seconds: float) -> frozenset[str]:
        """Stop a helper; return the hosts to which the order has to be sent."""
        if self._tracker.get(incarnation) is None:
            for part in self._tracker.find(incarnation).parts.values():
                part.may_start = True  # an earlier supervisor may have started it
        (helper,) = self._tracker.ask([incarnation])
        if not helper.has_begun:
            self._end(helper, NEVER_STARTED)
        if helper.end:
            return frozenset()
        hosts: frozenset[str] = frozenset()
        for part in helper.parts.values():
            if part.exit is None and not part.may_start:
                part.kill_at = self._loop.time()
                ended = self.end_part(helper, part.host, NEVER_STARTED)
                hosts |= ended.to_stop if ended else frozenset()
            elif part.exit is None:
                kill_at = self._loop.time() + max(0.0, grace_seconds)
                part.kill_at = kill_at if part.kill_at is None or grace_seconds <= 0 else part.kill_at
                hosts |= {part.host}
        return hosts

    def orders(self, host: str) -> Iterator[dict[str, Any]]:
        """Yield the orders to send to a host whenever it connects."""
        for helper in self._tracker:
            yield from helper.orders(host, self._loop.time())

    def find_ordered(self, incarnation: Incarnation, host: str) -> Helper | None:
        """Return a helper if this host was ordered to start it, else None."""
        helper = self._tracker.get(incarnation)
        part = helper.parts.get(host) if helper else None
        return helper if part and part.may_start else None

    def write(self, host: str, helper: Helper, piece: LogPiece) -> None:
        """Append the new bytes of a piece to the log of its host, and its complete lines to the log of all hosts."""
        part = helper.parts[host]
        known = part.offset - piece.at
        if known < 0:
            return
        begun = _last_line(part.file)
        data = piece.data[known:]
        with os.fdopen(open_file(part.file, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "ab") as file:
            file.write(data)
        lines, whole, _ = (begun + data).rpartition(b"\n")
        if whole:
            self._append(helper, host, lines + whole)

    def started(self, helper: Helper, event: ReplicaStarted) -> None:
        """Report the start of a helper that a host has sent; only the first one is reported."""
        if helper.end is None:
            hosts = list(helper.parts)
            words = f"on {hosts[0]}" if len(hosts) == 1 else f"on {len(hosts)} hosts"
            self._tracker.start(helper, event.replace(note=words))

    def lose(self, host: str, exit_: Exit) -> list[PartEnded]:
        """End all helpers on a lost host; return these ends."""
        found: list[PartEnded] = []
        for helper in self._tracker:
            if helper.end and helper.waits_on(host):
                del helper.parts[host]  # it starts again when the host has connected again
                found.append(PartEnded(host, exit_, is_late=True))
            elif host in helper.parts and (ended := self.end_part(helper, host, exit_)):
                found.append(ended)
        return found

    def folders(self) -> Iterator[Path]:
        """Yield the folders of helpers with a log that may still grow."""
        return (helper.folder for helper in self._tracker if helper.is_active)

    def waits(self, incarnation: Incarnation, host: str) -> bool:
        """Return whether a helper has to start on this host, which does not have all files for it yet."""
        helper = self._tracker.get(incarnation)
        return helper is not None and helper.waits_on(host) and not helper.parts[host].may_start

    def overdue(self, host: str, before: float) -> bool:
        """Return whether a helper was to be killed on this host before this time, and no end of it was reported."""
        parts = [each.parts[host] for each in self._tracker if each.waits_on(host)]
        return any(part.kill_at is not None and part.kill_at < before for part in parts)

    def living(self, host: str) -> list[Incarnation]:
        """Return the helpers that run on this host, as far as is known."""
        return [each.id for each in self._tracker if each.waits_on(host)]

    def hosts(self) -> set[str]:
        """Return the hosts on which helpers run, or have run."""
        return {host for helper in self._tracker for host in helper.parts}

    def _recall(self) -> Iterator[Incarnation]:
        """Yield the helpers that have succeeded under an earlier supervisor."""
        for name in self._names:
            for folder in self._run_dir.glob(f"attempts/0/{name}*"):
                stem, _, number = folder.name.partition("+")
                if stem == str(name) and (end := read_end(folder)) and end.exit.ok:
                    yield Incarnation(name, 0, int(number or 0))

    def end_part(self, helper: Helper, host: str, exit_: Exit) -> PartEnded | None:
        """Record that a helper has ended on one host, and report its end if that was the last host.

        Return None if it had ended there before.
        """
        if not helper.waits_on(host):
            return None
        part = helper.parts[host]
        part.exit = exit_
        if rest := _last_line(part.file):
            self._append(helper, host, rest + b"\n")
        if part.is_late:
            done = [name for name in helper.parts if helper.is_done_on(name)]
            helper.note_hosts(done)
            return PartEnded(host, exit_, is_late=True)
        if not exit_.ok:
            helper_was_alone = len(helper.parts) == 1
            part.exit = exit_ if helper_was_alone else exit_.replace(message=_on(host, exit_.message))
        if all(each.exit for each in helper.parts.values()):
            self._end(helper, _first_failure(helper.parts.values()))
        elif not exit_.ok:
            return PartEnded(host, exit_, to_stop=self.stop(helper.id, 0.0))
        return PartEnded(host, exit_)

    def _end(self, helper: Helper, exit_: Exit) -> None:
        self._tracker.end(helper, End(exit_, self._loop.time(), has_started=helper.has_started))

    def _append(self, helper: Helper, host: str, lines: bytes) -> None:
        if len(helper.parts) > 1:
            lines = b"".join(f"{host}: ".encode() + line for line in lines.splitlines(keepends=True))
        file = os.open(helper.folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(file, lines)
        finally:
            os.close(file)


def with_secrets(plan: Plan, environ: Mapping[str, str]) -> Plan:
    """Return the plan for hosts that run helpers: each secret of a helper is replaced by its value in `environ`.

    Variables of replicas are left out: they are only for the hosts of these replicas. Raise EngineError for a secret
    that is not set.
    """

    def value(value: Value) -> Value:
        if isinstance(value, str):
            return value
        if not environ.get(value.variable):
            hint = f"set it where you launch: `export {value.variable}=…`"
            raise EngineError(f"the secret {value.variable} is not set", hint=hint)
        return environ[value.variable]

    made = [each.replace(env={name: value(v) for name, v in each.env.items()}) for each in plan.preparations]
    replicas = tuple(each.replace(env={}) for each in plan.replicas)
    return plan.replace(preparations=tuple(made), replicas=replicas)


def _first_failure(parts: Iterable[HelperPart]) -> Exit:
    """Return how a helper ended on the first host where it failed, which ended the others."""
    exits = [(each.exit.ok, each.kill_at is not None, each.exit) for each in parts if each.exit]
    # A failure comes before the end of a part that was stopped, and an exit code before a signal.
    *_, exit_ = min(exits, key=lambda each: (*each[:2], each[2].signal is not None))
    return exit_


def _on(host: str, message: str) -> str:
    """Return the message of an exit with the name of the host, unless it has that name already."""
    if host in re.findall(r"[\w.@-]+", message):
        return message
    return f"{message}, on {host}" if message else f"on {host}"


def _last_line(file: Path) -> bytes:
    """Return the bytes of a log after its last complete line."""
    with suppress(OSError), file.open("rb") as log:
        log.seek(max(0, os.fstat(log.fileno()).st_size - (1 << 16)))
        return log.read().rpartition(b"\n")[2]
    return b""
