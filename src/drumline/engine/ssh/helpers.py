"""What helps a line before it starts, on every host at once: told of as one helper, whose log has the lines of all.

An environment and a data folder are of one host, unless hosts share a folder; then one makes it, and the others find
it. The first that fails ends the others.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from drumline.engine.local.life import Life
from drumline.engine.notes import End, note, note_end, read_end, read_notes
from drumline.engine.protocol import Loop, Tell
from drumline.engine.ssh.lives import NEVER_STARTED
from drumline.engine.ssh.wire import Frame, life_from_data, life_to_data
from drumline.errors import EngineError
from drumline.plan.types import Plan, Value
from drumline.run.event import Exit, ReplicaExited, ReplicaStarted
from drumline.run.traces import LOG

Order = Callable[[str], None]  # have a host told all that is wanted of it
_HOSTS = "hosts"  # in its trace: where it is


class Part:
    """A helper on one host: its log as it is there, and its end."""

    def __init__(self, folder: Path, host: str) -> None:
        self.host = host
        self.file = folder / f"{LOG}.{host.replace('/', '_')}"
        self.kill_at: float | None = None
        self.exit: Exit | None = None
        self.begins = False  # all that it needs is there

    @property
    def offset(self) -> int:
        """How much of its log is here."""
        with suppress(OSError):
            return self.file.stat().st_size
        return 0


class Helper:
    """A life of a helper, on all its hosts."""

    def __init__(self, life: Life, folder: Path, hosts: Sequence[str]) -> None:
        self.life = life
        self.folder = folder
        self.plans: dict[str, str] = {}  # of each host, as JSON
        self.parts = {host: Part(folder, host) for host in hosts}
        self.has_started = False
        self.end: End | None = None

    def orders(self, host: str, now: float) -> Iterator[dict[str, Any]]:
        """What a host is to be told, as often as it answers anew."""
        part = self.parts.get(host)
        if part is None or part.exit or self.end or not part.begins:
            return
        name, offsets = str(self.life.replica), {life_to_data(self.life): part.offset}
        if part.kill_at is None:
            about = {"helper": name, "incarnation": self.life.incarnation, "attempt": 0}
            yield {"do": "prepare", **about, "plan": self.plans[host], "offsets": offsets}
        else:
            lives = [life_to_data(self.life)]
            yield {
                "do": "stop",
                "lives": lives,
                "attempt": 0,
                "grace": max(0.0, part.kill_at - now),
                "offsets": offsets,
            }


class Helpers:
    """The helpers of one run."""

    def __init__(self, run_dir: Path, order: Order, loop: Loop, tell: Tell) -> None:
        self._run_dir = run_dir
        self._order = order
        self._loop = loop
        self._tell = tell
        self._known: dict[Life, Helper] = {}

    def begin(self, life: Life, hosts: Sequence[str]) -> Sequence[str]:
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

    def go(self, life: Life, host: str, plan: str) -> bool:
        """All that it needs is there: let it begin on this host, by this plan; whether this was the last host."""
        helper = self._known[life]
        helper.plans[host] = plan
        helper.parts[host].begins = True
        self._order(host)
        return all(part.begins for part in helper.parts.values())

    def refuse(self, life: Life, host: str, message: str) -> None:
        """It cannot begin on this host."""
        self._end_part(self._known[life], host, Exit(message=message))

    def stop(self, life: Life, grace_seconds: float) -> None:
        """Stop a helper wherever it is."""
        helper = self._known.get(life) or self._take_up(life)
        if helper is None:
            self._tell(ReplicaExited(*life, NEVER_STARTED, self._loop.now()))
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
                part.kill_at = self._loop.now()
                self._end_part(helper, part.host, NEVER_STARTED)
            elif part.exit is None:
                kill_at = self._loop.now() + max(0.0, grace_seconds)
                part.kill_at = kill_at if part.kill_at is None or grace_seconds <= 0 else part.kill_at
                self._order(part.host)

    def orders(self, host: str) -> Iterator[dict[str, Any]]:
        """What a host is to be told, as often as it answers anew."""
        for helper in self._known.values():
            yield from helper.orders(host, self._loop.now())

    def write(self, host: str, frame: Frame) -> None:
        """Keep a piece of a log as it is there, and its whole lines in the log of all."""
        helper = self._known.get(life_from_data(frame.message["life"]))
        if helper is None or host not in helper.parts or frame.message["do"] != "log":
            return
        part = helper.parts[host]
        known = part.offset - frame.message["at"]
        if known < 0:
            return
        begun = _last_line(part.file)
        data = frame.data[known:]
        with part.file.open("ab") as file:
            file.write(data)
        lines, whole, _ = (begun + data).rpartition(b"\n")
        if whole:
            self._append(helper, host, lines + whole)

    def started(self, host: str, event: ReplicaStarted) -> None:
        """A host says that a helper has begun there."""
        helper = self._known.get(Life(event.replica, event.attempt, event.incarnation))
        if helper and host in helper.parts and not helper.has_started and helper.end is None:
            helper.has_started = True
            hosts = list(helper.parts)
            words = f"on {hosts[0]}" if len(hosts) == 1 else f"on {len(hosts)} hosts"
            self._tell(event._replace(note=words))

    def ended(self, host: str, event: ReplicaExited) -> None:
        """A host says that a helper has ended there."""
        helper = self._known.get(Life(event.replica, event.attempt, event.incarnation))
        if helper and host in helper.parts:
            self._end_part(helper, host, event.exit)

    def lose(self, host: str, exit_: Exit) -> None:
        """A host is gone, and with it whoever helped there."""
        for helper in list(self._known.values()):
            if host in helper.parts:
                self._end_part(helper, host, exit_)

    def folders(self) -> Iterator[Path]:
        """Where logs grow."""
        return (helper.folder for helper in self._known.values() if helper.end is None)

    def waits(self, life: Life, host: str) -> bool:
        """Whether it is to begin on this host, which is not ready for it."""
        helper = self._known.get(life)
        return helper is not None and helper.end is None and not (helper.parts[host].begins or helper.parts[host].exit)

    def living(self, host: str) -> list[Life]:
        """Who helps on this host, as far as anybody knows."""
        found = (each for each in self._known.values() if each.end is None and host in each.parts)
        return [each.life for each in found if each.parts[host].exit is None]

    def hosts(self) -> set[str]:
        """Where somebody helps, or has."""
        return {host for helper in self._known.values() for host in helper.parts}

    def _take_up(self, life: Life) -> Helper | None:
        """A helper that an earlier supervisor began."""
        folder = life.folder(self._run_dir)
        hosts = read_notes(folder).get(_HOSTS)
        if not hosts:
            return None
        helper = Helper(life, folder, hosts)
        helper.end = read_end(folder)
        return helper

    def _end_part(self, helper: Helper, host: str, exit_: Exit) -> None:
        part = helper.parts[host]
        if part.exit is not None or helper.end:
            return
        part.exit = exit_
        if rest := _last_line(part.file):
            self._append(helper, host, rest + b"\n")
        if not exit_.ok:
            helper_was_alone = len(helper.parts) == 1
            part.exit = exit_ if helper_was_alone else exit_._replace(message=_on(host, exit_.message))
        if all(each.exit for each in helper.parts.values()):
            self._end(helper)
        elif not exit_.ok:
            self.stop(helper.life, 0.0)

    def _end(self, helper: Helper) -> None:
        """Tell how it ended: as on the first host where it did not end well, which ended the others."""
        exits = [(each.exit.ok, each.kill_at is not None, each.exit) for each in helper.parts.values() if each.exit]
        *_, exit_ = min(exits, key=lambda each: (*each[:2], each[2].signal is not None))  # by itself, before stopped
        end = End(exit_, self._loop.now(), has_started=helper.has_started)
        helper.end = end
        note_end(helper.folder, end)
        self._tell(ReplicaExited(*helper.life, end.exit, end.at_seconds))

    def _tell_end(self, helper: Helper, end: End) -> None:
        if end.has_started and not helper.has_started:
            helper.has_started = True
            self._tell(ReplicaStarted(*helper.life))
        self._tell(ReplicaExited(*helper.life, end.exit, end.at_seconds))

    def _append(self, helper: Helper, host: str, lines: bytes) -> None:
        if len(helper.parts) > 1:
            lines = b"".join(f"{host}: ".encode() + line for line in lines.splitlines(keepends=True))
        file = os.open(helper.folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(file, lines)
        finally:
            os.close(file)


def filled(plan: Plan, environ: Mapping[str, str]) -> Plan:
    """The same plan with the secrets of what it prepares, which are this machine's; raise EngineError without one."""

    def value(value: Value) -> Value:
        if isinstance(value, str):
            return value
        if not environ.get(value.variable):
            hint = f"set it where you launch: `export {value.variable}=…`"
            raise EngineError(f"the secret {value.variable} is not set", hint=hint)
        return environ[value.variable]

    made = [each._replace(env={name: value(v) for name, v in each.env.items()}) for each in plan.preparations]
    return plan._replace(preparations=tuple(made))


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
