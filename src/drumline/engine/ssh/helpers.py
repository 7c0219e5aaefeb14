"""What helps a line before it starts, on every host at once: told of as one helper, whose log has the lines of all.

An environment and a data folder are of one host, unless hosts share a folder; then one makes it, and the others find
it. The first that fails ends the others. A host that comes when they are at work, or done, does the same.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drumline.engine.incarnation import Incarnation
from drumline.engine.notes import End, note, note_end, read_end, read_notes
from drumline.engine.protocol import Tell
from drumline.engine.ssh.helper import Helper, Part
from drumline.engine.ssh.news import LogPiece
from drumline.engine.tracker import NEVER_STARTED
from drumline.errors import EngineError
from drumline.plan.types import Plan, ReplicaId, Value
from drumline.run.event import Exit, ReplicaExited, ReplicaStarted
from drumline.run.failure import describe_exit
from drumline.run.traces import LOG
from drumline.runtime.private import open_file

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

Order = Callable[[str], None]  # have a host told all that is wanted of it
_HOSTS = "hosts"  # in its trace: where it is


class Helpers:
    """The helpers of one run, by name in the order in which they work."""

    def __init__(
        self, run_dir: Path, order: Order, loop: AbstractEventLoop, tell: Tell, names: Sequence[ReplicaId] = ()
    ) -> None:
        self._run_dir = run_dir
        self._order = order
        self._loop = loop
        self._tell = tell
        self._known = {helper.life: helper for helper in self._recall(names)}
        self._names = names
        self.joined: Callable[[str, Exit], None] = lambda *_: None  # of one that came late: it has ended there

    def begin(self, life: Incarnation, hosts: Sequence[str]) -> Sequence[str]:
        """Have a helper on these hosts, or on those where it is; return which have to be made ready for it."""
        helper = self._known.get(life)
        if helper is None:
            helper = self._take_up(life) or Helper(life, life.folder(self._run_dir), hosts)
            self._known[life] = helper
            note(helper.folder, {_HOSTS: list(helper.parts)})
        if helper.end:
            self._tell_end(helper, helper.end)
            return ()
        return [host for host in helper.parts if host not in helper.plans]

    def knows(self, life: Incarnation) -> bool:
        """Whether it was begun, by us or by an earlier supervisor."""
        return life in self._known or self._take_up(life) is not None

    def join(self, host: str) -> Incarnation | None:
        """A host has come: who has to work there next because it was away before; None if nobody has to now."""
        for helper in self._latest():
            if helper.is_done_on(host):
                continue
            if host in helper.parts or (helper.end and not helper.end.exit.ok):
                return None  # it is at work, or all is over
            part = helper.parts[host] = Part(helper.folder, host)
            part.is_late = helper.end is not None
            if not part.is_late:
                note(helper.folder, {_HOSTS: list(helper.parts)})
            return helper.life
        return None

    def unready(self, host: str) -> str:
        """What is done elsewhere and not on a host that was away then, in words; and how it ended there, if it did."""
        for helper in self._latest():
            if helper.end and helper.end.exit.ok and not helper.is_done_on(host):
                part, name = helper.parts.get(host), helper.life.replica
                failed = f": {describe_exit(part.exit)}" if part and part.exit else ""
                return f"{name} is not done on {host}, which was away when it began{failed}"
        return ""

    def has_failed(self, host: str) -> bool:
        """Whether something did not end well there that came late."""
        parts = [helper.parts[host] for helper in self._latest() if host in helper.parts]
        return any(part.is_late and part.exit and not part.exit.ok for part in parts)

    def _latest(self) -> list[Helper]:
        """The last life of each helper that has had one."""
        last = {
            helper.life.replica: helper
            for helper in sorted(self._known.values(), key=lambda each: (each.life.attempt, each.life.incarnation))
        }
        return [last[name] for name in self._names if name in last]

    def go(self, life: Incarnation, host: str, plan: str) -> bool:
        """All that it needs is there: let it begin on this host, by this plan; whether this was the last host."""
        helper = self._known[life]
        helper.plans[host] = plan
        helper.parts[host].begins = True
        self._order(host)
        return all(part.begins for part in helper.parts.values())

    def fail(self, life: Incarnation, message: str) -> None:
        """It cannot begin anywhere."""
        self._tell(
            ReplicaExited(life.replica, life.attempt, life.incarnation, Exit(message=message), self._loop.time())
        )

    def refuse(self, life: Incarnation, host: str, message: str) -> None:
        """It cannot begin on this host."""
        self._end_part(self._known[life], host, Exit(message=message))

    def stop(self, life: Incarnation, grace_seconds: float) -> None:
        """Stop a helper wherever it is."""
        helper = self._known.get(life) or self._take_up(life)
        if helper is None:
            self._tell(ReplicaExited(life.replica, life.attempt, life.incarnation, NEVER_STARTED, self._loop.time()))
            return
        if life not in self._known:
            self._known[life] = helper
            for part in helper.parts.values():
                part.begins = True  # as far as anybody knows
        if helper.end:
            self._tell_end(helper, helper.end)
            return
        for part in helper.parts.values():
            if part.exit is None and not part.begins:
                part.kill_at = self._loop.time()
                self._end_part(helper, part.host, NEVER_STARTED)
            elif part.exit is None:
                kill_at = self._loop.time() + max(0.0, grace_seconds)
                part.kill_at = kill_at if part.kill_at is None or grace_seconds <= 0 else part.kill_at
                self._order(part.host)

    def orders(self, host: str) -> Iterator[dict[str, Any]]:
        """What a host is to be told, as often as it answers anew."""
        for helper in self._known.values():
            yield from helper.orders(host, self._loop.time())

    def given(self, life: Incarnation, host: str) -> Helper | None:
        """Return a helper if this host was told to begin it, else None."""
        helper = self._known.get(life)
        part = helper.parts.get(host) if helper else None
        return helper if part and part.begins else None

    def write(self, host: str, helper: Helper, piece: LogPiece) -> None:
        """Keep a piece of a log as it is there, and its whole lines in the log of all."""
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
        """A host says that a helper has begun there."""
        if not helper.has_started and helper.end is None:
            helper.has_started = True
            hosts = list(helper.parts)
            words = f"on {hosts[0]}" if len(hosts) == 1 else f"on {len(hosts)} hosts"
            self._tell(event.replace(note=words))

    def ended(self, host: str, helper: Helper, event: ReplicaExited) -> None:
        """A host says that a helper has ended there."""
        self._end_part(helper, host, event.exit)

    def lose(self, host: str, exit_: Exit) -> None:
        """A host is gone, and with it whoever helped there."""
        for helper in list(self._known.values()):
            if helper.end and helper.waits_on(host):
                del helper.parts[host]  # it begins once more when it comes again
                self.joined(host, exit_)
            elif host in helper.parts:
                self._end_part(helper, host, exit_)

    def folders(self) -> Iterator[Path]:
        """Where logs grow."""
        return (helper.folder for helper in self._known.values() if helper.goes_on)

    def waits(self, life: Incarnation, host: str) -> bool:
        """Whether it is to begin on this host, which is not ready for it."""
        helper = self._known.get(life)
        return helper is not None and helper.waits_on(host) and not helper.parts[host].begins

    def overdue(self, host: str, before: float) -> bool:
        """Whether a helper was to be killed on this host by a time before this, and has not ended as far as known."""
        parts = [each.parts[host] for each in self._known.values() if each.waits_on(host)]
        return any(part.kill_at is not None and part.kill_at < before for part in parts)

    def living(self, host: str) -> list[Incarnation]:
        """Who helps on this host, as far as anybody knows."""
        return [each.life for each in self._known.values() if each.waits_on(host)]

    def hosts(self) -> set[str]:
        """Where somebody helps, or has."""
        return {host for helper in self._known.values() for host in helper.parts}

    def _recall(self, names: Sequence[ReplicaId]) -> Iterator[Helper]:
        """Those that were done under an earlier supervisor."""
        for name in names:
            for folder in self._run_dir.glob(f"attempts/0/{name}*"):
                stem, _, number = folder.name.partition("+")
                helper = self._take_up(Incarnation(name, 0, int(number or 0))) if stem == str(name) else None
                if helper and helper.end and helper.end.exit.ok:
                    yield helper

    def _take_up(self, life: Incarnation) -> Helper | None:
        """A helper that an earlier supervisor began."""
        folder = life.folder(self._run_dir)
        hosts = read_notes(folder).get(_HOSTS)
        if not hosts:
            return None
        helper = Helper(life, folder, hosts)
        helper.end = read_end(folder)
        return helper

    def _end_part(self, helper: Helper, host: str, exit_: Exit) -> None:
        if not helper.waits_on(host):
            return
        part = helper.parts[host]
        part.exit = exit_
        if rest := _last_line(part.file):
            self._append(helper, host, rest + b"\n")
        if part.is_late:
            done = [name for name in helper.parts if helper.is_done_on(name)]
            note(helper.folder, {_HOSTS: done})
            self.joined(host, exit_)
            return
        if not exit_.ok:
            helper_was_alone = len(helper.parts) == 1
            part.exit = exit_ if helper_was_alone else exit_.replace(message=_on(host, exit_.message))
        if all(each.exit for each in helper.parts.values()):
            self._end(helper)
        elif not exit_.ok:
            self.stop(helper.life, 0.0)

    def _end(self, helper: Helper) -> None:
        """Tell how it ended: as on the first host where it did not end well, which ended the others."""
        exits = [(each.exit.ok, each.kill_at is not None, each.exit) for each in helper.parts.values() if each.exit]
        *_, exit_ = min(exits, key=lambda each: (*each[:2], each[2].signal is not None))  # by itself, before stopped
        end = End(exit_, self._loop.time(), has_started=helper.has_started)
        helper.end = end
        note_end(helper.folder, end)
        self._tell(
            ReplicaExited(helper.life.replica, helper.life.attempt, helper.life.incarnation, end.exit, end.at_seconds)
        )

    def _tell_end(self, helper: Helper, end: End) -> None:
        if end.has_started and not helper.has_started:
            helper.has_started = True
            self._tell(ReplicaStarted(helper.life.replica, helper.life.attempt, helper.life.incarnation))
        self._tell(
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
    """The same, with the name of the host if it has none."""
    if host in re.findall(r"[\w.@-]+", message):
        return message
    return f"{message}, on {host}" if message else f"on {host}"


def _last_line(file: Path) -> bytes:
    """What stands behind the last whole line."""
    with suppress(OSError), file.open("rb") as log:
        log.seek(max(0, os.fstat(log.fileno()).st_size - (1 << 16)))
        return log.read().rpartition(b"\n")[2]
    return b""
