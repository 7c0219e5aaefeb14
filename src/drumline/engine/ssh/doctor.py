"""What hosts have for a line, and whether they reach each other: asked of all of them at once."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from drumline.engine.health import PACKAGES, UNSURE, Health, Patient
from drumline.engine.ssh import diagnosis
from drumline.engine.ssh.agent import FOLDER, GREETING_BYTES, MOST_GREETINGS
from drumline.engine.ssh.answers import MOST_PORT, Done
from drumline.engine.ssh.diagnosis import Found
from drumline.engine.ssh.refusal import MalformedError
from drumline.engine.ssh.shell import Shell, Talk, connect, last_words
from drumline.engine.ssh.wire import LINE_BYTES
from drumline.engine.untrusted import clean_text, load_json, load_record
from drumline.errors import DrumlineError, EngineError
from drumline.plan.assign import Room, assign, room_of
from drumline.plan.hosts import Host, Hosts, require_hosts
from drumline.plan.types import Plan
from drumline.record import Record

T = TypeVar("T")

_SECONDS = 30.0  # for one answer
_CALL_SECONDS = 5.0
_SHARED_SECONDS = 5.0
_CLOCK_LOOKS = 5
_VERSION = re.compile(r"[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}", re.ASCII)


class LookFacts(Record):
    """What `look.facts` answers."""

    python: str
    packages: Mapping[str, str]
    folder: str
    free: int
    writable: bool
    cpus: float
    memory: int
    gpus: int


class LookPackages(Record):
    """What `look.packages_of` answers."""

    packages: Mapping[str, str]


class LookClock(Record):
    """What `look.clock` answers."""

    time: float


class LookPorts(Record):
    """What `look.listen` answers: ports on which it listens now, and those that were taken."""

    ports: tuple[int, ...]
    taken: tuple[int, ...]


class LookTroubles(Record):
    """What `look.call` answers: for each peer what is wrong with it, or nothing."""

    troubles: tuple[str, ...]


class LookFiles(Record):
    """What `look.read` answers: what is in each file."""

    found: Mapping[str, str]


def examine(patient: Patient) -> list[Health]:
    """Ask every host; of one that cannot be asked, only why is told."""
    hosts = patient.hosts or Hosts()
    require_hosts(hosts)
    return asyncio.run(_examine(hosts, patient.plan))


async def _examine(hosts: Hosts, plan: Plan | None) -> list[Health]:
    looks = [_Look(host, hosts) for host in hosts.all]
    try:
        found = await asyncio.gather(*(_find(look, plan) for look in looks))
        rows = [diagnosis.judge_host(each) for each in found]
        usable = [each for each in found if not each.error]
        if not usable:
            return rows
        rows.append(diagnosis.judge_pythons(usable))
        if plan and (judged := diagnosis.judge_packages(usable, plan)):
            rows.append(judged)
        rows += [diagnosis.judge_clocks(usable), diagnosis.judge_disks(usable), diagnosis.judge_gpus(usable, plan)]
        there = [look for look, each in zip(looks, found, strict=True) if not each.error]
        rows.append(await _ports(there, usable, plan))
        rows.append(diagnosis.judge_shared(hosts, await _shared(there, hosts.shared) if hosts.shared else ()))
        if plan:
            rows.append(diagnosis.judge_room(usable, plan))
        return rows
    finally:
        await asyncio.gather(*(look.close() for look in looks))


class _Look:
    """Somebody on a host who answers questions, one after the other."""

    def __init__(self, host: Host, hosts: Hosts) -> None:
        self.host = host
        self._hosts = hosts
        self._shell: Shell | None = None
        self._talk: Talk | None = None

    @property
    def folder(self) -> str:
        """Where runs would have their folders there."""
        return self._hosts.folder or FOLDER

    async def open(self) -> tuple[str, str]:
        """Reach the host and have somebody there; return its address and which Python it has."""
        self._shell = shell = await connect(self.host.name, config=self._hosts.config)
        python = self._hosts.python
        code = "import sys; print('%d.%d.%d' % sys.version_info[:3])"
        answer = await shell.run([python, "-c", code], seconds=_SECONDS)
        hint = "install Python 3.11 or newer there, or name the one that it has: `ssh: {python: PATH}`"
        words = answer.out.decode(errors="replace").split()
        if answer.code or not words or not _VERSION.fullmatch(words[-1]):
            said = last_words(answer.err)
            raise EngineError(f"{shell.address}, but there is no Python that works as `{python}`: {said}", hint=hint)
        version = words[-1]
        if not diagnosis.is_new_enough(version):
            old = f"{shell.address}, but `{python}` is Python {version}, and 3.11 or newer is needed there"
            raise EngineError(old, hint=hint)
        source = Path(__file__).with_name("look.py").read_text()
        self._talk = await shell.talk([python, "-c", source])
        for _ in range(MOST_GREETINGS):
            if b"drumline-look" in await self._line(GREETING_BYTES):
                return shell.address, version
        raise EngineError(f"{self.host.name} does not answer")

    async def ask(self, do: str, kind: type[T], **words: object) -> T:
        """Ask, and return the answer; raise EngineError if there is none, or it is that something failed."""
        assert self._talk
        await self._talk.write(json.dumps({"do": do, **words}).encode() + b"\n")
        line = await self._line(LINE_BYTES)
        try:
            answer = load_json(line)
            if not isinstance(answer, dict) or "error" not in answer:
                return load_record(kind, answer)
        except ValueError as error:
            raise MalformedError(self.host.name, error) from None
        raise EngineError(clean_text(str(answer["error"])))

    async def _line(self, most_bytes: int) -> bytes:
        assert self._talk
        try:
            async with asyncio.timeout(_SECONDS):
                line = await self._talk.readline(most_bytes)
        except TimeoutError:
            raise EngineError(f"{self.host.name} does not answer any more") from None
        if not line:
            raise EngineError(f"{self.host.name}: {last_words(await self._talk.said_last())}")
        return line

    async def close(self) -> None:
        """Let it go, and see it leave, if it can be heard."""
        if self._talk:
            with suppress(EngineError):
                await self._talk.write(b'{"do": "leave"}\n')
                await self._line(LINE_BYTES)
            self._talk.close()
        if self._shell:
            await self._shell.close()


async def _find(look: _Look, plan: Plan | None) -> Found:
    """Everything about one host by itself."""
    packages = PACKAGES[plan.framework] if plan else ()
    try:
        address, version = await look.open()
        facts = await look.ask("facts", LookFacts, folder=look.folder, packages=packages)
        if named := _named_python(plan):
            other = await look.ask("packages_of", LookPackages, python=named, packages=packages)
            facts = facts.replace(packages=other.packages)
        skew = await _skew(look)
    except DrumlineError as error:
        return Found(look.host, error.message, error.hint)
    return Found(
        look.host,
        address=look.host.address or address,
        version=version,
        python=clean_text(facts.python),
        packages={name: clean_text(facts.packages[name], 100) for name in packages if name in facts.packages},
        folder=clean_text(facts.folder),
        free_bytes=facts.free,
        is_writable=facts.writable,
        room=Room(facts.cpus, facts.memory, facts.gpus),
        skew_seconds=skew,
    )


def _named_python(plan: Plan | None) -> str | None:
    """The Python that the chief's command itself names, if it is not to be looked for."""
    who = next((each for each in plan.replicas if each.id == plan.chief), None) if plan else None
    if who is None or "/" not in who.argv[0] or "python" not in who.argv[0].rpartition("/")[2]:
        return None
    return who.argv[0]


async def _skew(look: _Look) -> float:
    """How far its clock is before ours: by the quickest answer of several."""
    looks: list[tuple[float, float]] = []
    for _ in range(_CLOCK_LOOKS):
        before = time.time()
        there = (await look.ask("clock", LookClock)).time
        after = time.time()
        looks.append((after - before, there - (before + after) / 2))
    return min(looks)[1]


async def _ports(looks: Sequence[_Look], found: Sequence[Found], plan: Plan | None) -> Health:
    """Let everybody listen where its replicas would, and everybody call everybody."""
    wanted = _wanted_ports(found, plan)
    try:
        heard = await asyncio.gather(
            *(look.ask("listen", LookPorts, name=look.host.name, ports=wanted[look.host.name]) for look in looks)
        )
        peers = [
            (each.name, each.address, port)
            for each, answer in zip(found, heard, strict=True)
            for port in answer.ports[: len(wanted[each.name]) or 1]
            if 0 < port <= MOST_PORT
        ]
        told = await asyncio.gather(
            *(look.ask("call", LookTroubles, peers=peers, seconds=_CALL_SECONDS) for look in looks)
        )
    except EngineError as error:
        return Health("ports", UNSURE, error.message)
    taken = {
        look.host.name: [port for port in answer.taken if port in (wanted[look.host.name] or (0,))]
        for look, answer in zip(looks, heard, strict=True)
    }
    troubles = {
        look.host.name: [
            f"{name} at {address}:{port} ({clean_text(trouble, 200)})"
            for (name, address, port), trouble in zip(peers, answer.troubles, strict=False)
            if trouble
        ]
        for look, answer in zip(looks, told, strict=True)
    }
    return diagnosis.judge_ports(taken, troubles, len(peers) * len(looks))


def _wanted_ports(found: Sequence[Found], plan: Plan | None) -> dict[str, list[int]]:
    """The ports that are fixed by host: as many as it would have replicas."""
    shares = dict.fromkeys((each.name for each in found), 1)
    if plan:
        insisting = plan.replace(oversubscribe=True)  # whether it fits is told elsewhere
        where = list(assign(insisting, {each.name: room_of(each.host, each.room) for each in found}).values())
        shares = {name: where.count(name) for name in shares}
    return {
        each.name: [each.host.port + more for more in range(max(1, shares[each.name]))] if each.host.port else []
        for each in found
    }


async def _shared(looks: Sequence[_Look], folder: str) -> list[str]:
    """Write a file on every host and read them all on every host; what is wrong with it."""
    stem = f"{folder}/.drumline-doctor-{secrets.token_hex(6)}"
    files = {look.host.name: f"{stem}-{number}" for number, look in enumerate(looks)}
    troubles = []
    for look in looks:
        try:
            await look.ask("write", Done, path=files[look.host.name], text=look.host.name)
        except EngineError as error:
            troubles.append(f"{look.host.name} cannot write there ({error.message.rpartition(': ')[2].lower()})")
            files.pop(look.host.name)
    asked = [look.ask("read", LookFiles, paths=list(files.values()), seconds=_SHARED_SECONDS) for look in looks]
    for look, answer in zip(looks, await asyncio.gather(*asked, return_exceptions=True), strict=True):
        if isinstance(answer, BaseException):
            troubles.append(f"{look.host.name} cannot read there")
            continue
        unseen = [name for name, path in files.items() if answer.found.get(path) != name]
        if unseen:
            troubles.append(f"{look.host.name} does not see what {' and '.join(unseen[:3])} wrote")
    await asyncio.gather(
        *(look.ask("remove", Done, paths=list(files.values())) for look in looks), return_exceptions=True
    )
    return troubles
