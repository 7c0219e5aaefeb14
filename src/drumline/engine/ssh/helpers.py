"""The helpers of a run, each on every host at once: it is reported as one, and its log has the lines of all hosts.

An environment and a data folder are of one host, unless hosts share a folder; then one host makes it, and the others
find it. The first that fails ends the others. A host that connects while they work, or later, does the same work.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drumline.engine.incarnation import Incarnation
from drumline.engine.notes import End, note, note_end, read_end, read_notes
from drumline.engine.protocol import Tell
from drumline.engine.ssh.helper import Helper, Part
from drumline.engine.ssh.reports import LogPiece
from drumline.engine.tracker import NEVER_STARTED
from drumline.errors import EngineError
from drumline.plan.types import Plan, ReplicaId, Value
from drumline.record import Record
from drumline.run.event import Exit, ReplicaExited, ReplicaStarted
from drumline.run.failure import describe_exit
from drumline.run.traces import LOG
from drumline.runtime.private import open_file

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

_HOSTS = "hosts"  # in its trace: where it is


class PartEnded(Record):
    """A helper has ended on one host."""

    host: str
    exit: Exit
    is_late: bool = False  # it began when all other hosts were done, whose end was reported
    to_stop: frozenset[str] = frozenset()  # other hosts, which are to be told to stop it


class Helpers:
    """Knows the helpers of one run, by name in the order in which they work; reports their starts and ends."""

    def __init__(self, run_dir: Path, loop: AbstractEventLoop, report: Tell, names: Sequence[ReplicaId] = ()) -> None:
        self._run_dir = run_dir
        self._loop = loop
        self._report = report
        self._known = {helper.life: helper for helper in self._recall(names)}
        self._names = names

    def begin(self, life: Incarnation, hosts: Sequence[str]) -> Sequence[str]:
        """Begin a helper on these hosts, or on those where it is; return the hosts that need the project first."""
        helper = self._known.get(life)
        if helper is None:
            helper = self._take_up(life) or Helper(life, life.folder(self._run_dir), hosts)
            self._known[life] = helper
            note(helper.folder, {_HOSTS: list(helper.parts)})
        if helper.end:
            self._report_end(helper, helper.end)
            return ()
        return [host for host in helper.parts if host not in helper.plans]

    def knows(self, life: Incarnation) -> bool:
        """Return whether it was begun, by this supervisor or an earlier one."""
        return life in self._known or self._take_up(life) is not None

    def join(self, host: str) -> Incarnation | None:
        """Return the next helper that has to work on a host which was away before; None if there is none now."""
        for helper in self._latest():
            if helper.is_done_on(host):
                continue
            if host in helper.parts or (helper.end and not helper.end.exit.ok):
                return None  # it works there now, or has failed
            part = helper.parts[host] = Part(helper.folder, host)
            part.is_late = helper.end is not None
            if not part.is_late:
                note(helper.folder, {_HOSTS: list(helper.parts)})
            return helper.life
        return None

    def unready(self, host: str) -> str:
        """Return what is done elsewhere and not on a host that was away then, and how it ended there; else nothing."""
        for helper in self._latest():
            if helper.end and helper.end.exit.ok and not helper.is_done_on(host):
                part, name = helper.parts.get(host), helper.life.replica
                failed = f": {describe_exit(part.exit)}" if part and part.exit else ""
                return f"{name} is not done on {host}, which was away when it began{failed}"
        return ""

    def has_failed(self, host: str) -> bool:
        """Return whether a helper has failed on a host that came late."""
        parts = [helper.parts[host] for helper in self._latest() if host in helper.parts]
        return any(part.is_late and part.exit and not part.exit.ok for part in parts)

    def _latest(self) -> list[Helper]:
        """Return the last incarnation of each helper that has had one."""
        last = {
            helper.life.replica: helper
            for helper in sorted(self._known.values(), key=lambda each: (each.life.attempt, each.life.incarnation))
        }
        return [last[name] for name in self._names if name in last]

    def go(self, life: Incarnation, host: str, plan: str) -> bool:
        """Let it begin on this host, by this plan; return whether it may on all hosts now."""
        helper = self._known[life]
        helper.plans[host] = plan
        helper.parts[host].begins = True
        return all(part.begins for part in helper.parts.values())

    def fail(self, life: Incarnation, message: str) -> None:
        """Report that it cannot begin on any host."""
        self._report(
            ReplicaExited(life.replica, life.attempt, life.incarnation, Exit(message=message), self._loop.time())
        )

    def refuse(self, life: Incarnation, host: str, message: str) -> PartEnded | None:
        """Note that it cannot begin on this host."""
        return self.end_part(self._known[life], host, Exit(message=message))

    def stop(self, life: Incarnation, grace_seconds: float) -> frozenset[str]:
        """Stop a helper; return the hosts that are to be told to."""
        helper = self._known.get(life) or self._take_up(life)
        if helper is None:
            self._report(ReplicaExited(life.replica, life.attempt, life.incarnation, NEVER_STARTED, self._loop.time()))
            return frozenset()
        if life not in self._known:
            self._known[life] = helper
            for part in helper.parts.values():
                part.begins = True  # as far as is known
        if helper.end:
            self._report_end(helper, helper.end)
            return frozenset()
        hosts: frozenset[str] = frozenset()
        for part in helper.parts.values():
            if part.exit is None and not part.begins:
                part.kill_at = self._loop.time()
                ended = self.end_part(helper, part.host, NEVER_STARTED)
                hosts |= ended.to_stop if ended else frozenset()
            elif part.exit is None:
                kill_at = self._loop.time() + max(0.0, grace_seconds)
                part.kill_at = kill_at if part.kill_at is None or grace_seconds <= 0 else part.kill_at
                hosts |= {part.host}
        return hosts

    def orders(self, host: str) -> Iterator[dict[str, Any]]:
        """Yield what a host is to be told whenever it answers."""
        for helper in self._known.values():
            yield from helper.orders(host, self._loop.time())

    def given(self, life: Incarnation, host: str) -> Helper | None:
        """Return a helper if this host was told to begin it, else None."""
        helper = self._known.get(life)
        part = helper.parts.get(host) if helper else None
        return helper if part and part.begins else None

    def write(self, host: str, helper: Helper, piece: LogPiece) -> None:
        """Append a piece to the log of its host, and its whole lines to the log of all hosts."""
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
        """Report a start that a host has sent, if it is the first."""
        if not helper.has_started and helper.end is None:
            helper.has_started = True
            hosts = list(helper.parts)
            words = f"on {hosts[0]}" if len(hosts) == 1 else f"on {len(hosts)} hosts"
            self._report(event.replace(note=words))

    def lose(self, host: str, exit_: Exit) -> list[PartEnded]:
        """End all helpers on a host that is lost."""
        found: list[PartEnded] = []
        for helper in list(self._known.values()):
            if helper.end and helper.waits_on(host):
                del helper.parts[host]  # it begins again when the host is back
                found.append(PartEnded(host, exit_, is_late=True))
            elif host in helper.parts and (ended := self.end_part(helper, host, exit_)):
                found.append(ended)
        return found

    def folders(self) -> Iterator[Path]:
        """Return the folders in which logs grow."""
        return (helper.folder for helper in self._known.values() if helper.goes_on)

    def waits(self, life: Incarnation, host: str) -> bool:
        """Return whether it is to begin on this host, which is not ready for it."""
        helper = self._known.get(life)
        return helper is not None and helper.waits_on(host) and not helper.parts[host].begins

    def overdue(self, host: str, before: float) -> bool:
        """Return whether a helper was to be killed on this host before this time, and has not ended as far as known."""
        parts = [each.parts[host] for each in self._known.values() if each.waits_on(host)]
        return any(part.kill_at is not None and part.kill_at < before for part in parts)

    def living(self, host: str) -> list[Incarnation]:
        """Return the helpers that run on this host, as far as is known."""
        return [each.life for each in self._known.values() if each.waits_on(host)]

    def hosts(self) -> set[str]:
        """Return the hosts on which helpers run, or have run."""
        return {host for helper in self._known.values() for host in helper.parts}

    def _recall(self, names: Sequence[ReplicaId]) -> Iterator[Helper]:
        """Yield those that were done under an earlier supervisor."""
        for name in names:
            for folder in self._run_dir.glob(f"attempts/0/{name}*"):
                stem, _, number = folder.name.partition("+")
                helper = self._take_up(Incarnation(name, 0, int(number or 0))) if stem == str(name) else None
                if helper and helper.end and helper.end.exit.ok:
                    yield helper

    def _take_up(self, life: Incarnation) -> Helper | None:
        """Return a helper that an earlier supervisor began."""
        folder = life.folder(self._run_dir)
        hosts = read_notes(folder).get(_HOSTS)
        if not hosts:
            return None
        helper = Helper(life, folder, hosts)
        helper.end = read_end(folder)
        return helper

    def end_part(self, helper: Helper, host: str, exit_: Exit) -> PartEnded | None:
        """Note that a helper has ended on one host, and report its end if that was the last; None if it had ended."""
        if not helper.waits_on(host):
            return None
        part = helper.parts[host]
        part.exit = exit_
        if rest := _last_line(part.file):
            self._append(helper, host, rest + b"\n")
        if part.is_late:
            done = [name for name in helper.parts if helper.is_done_on(name)]
            note(helper.folder, {_HOSTS: done})
            return PartEnded(host, exit_, is_late=True)
        if not exit_.ok:
            helper_was_alone = len(helper.parts) == 1
            part.exit = exit_ if helper_was_alone else exit_.replace(message=_on(host, exit_.message))
        if all(each.exit for each in helper.parts.values()):
            self._end(helper)
        elif not exit_.ok:
            return PartEnded(host, exit_, to_stop=self.stop(helper.life, 0.0))
        return PartEnded(host, exit_)

    def _end(self, helper: Helper) -> None:
        """Report its end: that of the first host where it failed, which ended the others."""
        exits = [(each.exit.ok, each.kill_at is not None, each.exit) for each in helper.parts.values() if each.exit]
        *_, exit_ = min(exits, key=lambda each: (*each[:2], each[2].signal is not None))  # by itself, before stopped
        end = End(exit_, self._loop.time(), has_started=helper.has_started)
        helper.end = end
        note_end(helper.folder, end)
        self._report(
            ReplicaExited(helper.life.replica, helper.life.attempt, helper.life.incarnation, end.exit, end.at_seconds)
        )

    def _report_end(self, helper: Helper, end: End) -> None:
        if end.has_started and not helper.has_started:
            helper.has_started = True
            self._report(ReplicaStarted(helper.life.replica, helper.life.attempt, helper.life.incarnation))
        self._report(
            ReplicaExited(helper.life.replica, helper.life.attempt, helper.life.incarnation, end.exit, end.at_seconds)
        )

    def _append(self, helper: Helper, host: str, lines: bytes) -> None:
        if len(helper.parts) > 1:
            lines = b"".join(f"{host}: ".encode() + line for line in lines.splitlines(keepends=True))
        file = os.open(helper.folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(file, lines)
        finally:
            os.close(file)


def filled(plan: Plan, environ: Mapping[str, str]) -> Plan:
    """Return the plan for hosts that prepare: with the secrets of what is prepared, which are this machine's.

    Variables of replicas are left out: each is for the hosts of that replica. Raise EngineError without a secret.
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


def _on(host: str, message: str) -> str:
    """Return the message with the name of the host, unless that is in it."""
    if host in re.findall(r"[\w.@-]+", message):
        return message
    return f"{message}, on {host}" if message else f"on {host}"


def _last_line(file: Path) -> bytes:
    """Return what is behind the last whole line."""
    with suppress(OSError), file.open("rb") as log:
        log.seek(max(0, os.fstat(log.fileno()).st_size - (1 << 16)))
        return log.read().rpartition(b"\n")[2]
    return b""
