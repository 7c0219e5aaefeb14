"""The way to one host, kept open: connects, has a hand there, and connects again for as long as it is wanted.

All of it happens in the courier's thread.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any, NamedTuple

from drumline.engine.ssh.package import BOOT, package_data, package_name
from drumline.engine.ssh.refusal import AwayError, RefusedError, raised
from drumline.engine.ssh.shell import Shell, Talk, connect, last_words
from drumline.engine.ssh.wire import MAGIC, SIZE, Frame, check_news
from drumline.errors import EngineError, InputError
from drumline.plan.hosts import Host, Hosts
from drumline.runtime.keeper import boot_id, now

FOLDER = "~/.local/share/drumline"
_AGENTS = "~/.cache/drumline/hosts"
_CONNECT_SECONDS = 15.0
_FIRST_WORD_SECONDS = 30.0
_MOST_GREETINGS = 1000  # lines that a shell may say before us
_CLOCK_LOOKS = 3
_QUIET_SECONDS = 15.0  # without an answer, and another connection is tried
_PAUSES_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)


class Facts(NamedTuple):
    """What a host is and has, and where it was found."""

    base: str  # the folder of all runs there
    boot: str
    python: str
    cpus: float
    memory_bytes: int
    gpus: tuple[str, ...]
    address: str
    runtime: str = ""
    skew_seconds: float = 0.0  # by which its clock is before ours


class Link:
    """A host's hand, as long as there is one; what it says is passed on, frame by frame."""

    def __init__(
        self,
        host: Host,
        hosts: Hosts,
        *,
        hear: Callable[[Frame], None],
        rises: Callable[[], None],
    ) -> None:
        self.host = host
        self._hosts = hosts
        self._hear = hear
        self._rises = rises
        self._quiet_seconds = min(_QUIET_SECONDS, hosts.lost_seconds / 2)
        self._numbers = count()
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._talk: Talk | None = None
        self.shell: Shell | None = None
        self.facts: Facts | None = None
        self.trouble: EngineError | None = None  # why there is no hand
        self.heard_at = now()
        self._let_in_at = 0.0
        self._risen = asyncio.Event()
        self._wanted = asyncio.Event()

    @property
    def answered_at(self) -> float:
        """When it was heard last; that it lets us in counts as well, until nothing comes of that."""
        return max(self.heard_at, self._let_in_at) if self.shell else self.heard_at

    @property
    def is_up(self) -> bool:
        """Whether there is a hand that answers."""
        return self._risen.is_set()

    @property
    def is_hindered(self) -> bool:
        """Whether the host could not be reached, and is only tried again and again."""
        return not self.is_up and self.shell is None and self.trouble is not None

    @property
    def skew_seconds(self) -> float:
        """By how much the host's clock is before ours."""
        return self.facts.skew_seconds if self.facts else 0.0

    async def keep(self) -> None:
        """Have a hand there, again and again, until this is cancelled."""
        tries = 0
        while True:
            try:
                await self._open()
                self._risen.set()
                self._rises()
                tries = 0
                await self._listen()
            except EngineError as error:
                self.trouble = error
            except InputError as error:
                self.trouble = RefusedError(error.message, hint=error.hint)
            except Exception as error:  # noqa: BLE001 - whatever it is, a host that is not tried again is lost
                self.trouble = AwayError(f"{self.host.name} says what nobody understands: {error!r}")
            finally:
                self._close()
            # `wait_for` of Python 3.11 forgets that it was cancelled if what it waits for comes at the same moment.
            with suppress(TimeoutError):  # who waits for it has it tried again at once
                async with asyncio.timeout(_PAUSES_SECONDS[min(tries, len(_PAUSES_SECONDS) - 1)]):
                    await self._wanted.wait()
            self._wanted.clear()
            tries += 1

    async def rise(self, seconds: float) -> bool:
        """Wait until there is a hand; False if it takes longer. Who has let us in by then is about to have one."""
        self._wanted.set()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._risen.wait(), seconds)
        until = now() + min(_FIRST_WORD_SECONDS, self._hosts.lost_seconds)
        while self.shell and not self.is_up and now() < until:
            await asyncio.sleep(_PAUSES_SECONDS[0])
        return self.is_up

    async def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Say this and wait for the answer; raise what the hand raised, AwayError if it is gone."""
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        try:
            await self.say({**message, "id": number})
            found: dict[str, Any] = await answer
        finally:
            self._answers.pop(number, None)
        if "error" in found:
            raise raised(self.host.name, found)
        return found

    async def say(self, message: dict[str, Any], data: bytes = b"") -> None:
        """Say this; raise AwayError if nobody is there."""
        if self._talk is None:
            raise AwayError(f"{self.host.name} does not answer")
        await self._talk.write(Frame(message, data).encode())

    async def _open(self) -> None:
        """Connect, have a hand there and greet it."""
        seconds = min(_CONNECT_SECONDS, max(1.0, self._hosts.lost_seconds))
        self.shell = await connect(self.host.name, config=self._hosts.config, seconds=seconds)
        self._let_in_at = now()
        self._hear_from(await open_hand(self.shell, self._hosts))
        folder = self._hosts.folder or FOLDER
        runtime = f"{_agents_folder(self._hosts)}/{package_name()}/runtime"
        greeting: dict[str, Any] = {
            "do": "hello",
            "run": self._hosts.unique,
            "folder": folder,
            "lease": self._hosts.lease_seconds,
            "lost": self._hosts.lost_seconds,
        }
        allowed = {"cpus": self.host.cpus, "memory_bytes": self.host.memory_bytes, "gpus": self.host.gpus}
        greeting |= {"runtime": runtime, "allowed": allowed}
        found = await self._within(self.ask(greeting), _FIRST_WORD_SECONDS)
        skew = 0.0 if found["boot"] == boot_id() else await self._skew()
        self.facts = read_facts(found, self.shell, skew)

    def _hear_from(self, talk: Talk) -> None:
        self._talk = talk
        self._listener = asyncio.ensure_future(self._read(talk))

    async def _skew(self) -> float:
        """How far its clock is before ours: by the quickest answer of several."""
        looks: list[tuple[float, float]] = []
        for _ in range(_CLOCK_LOOKS):
            before = now()
            there = (await self._within(self.ask({"do": "ping"}), self._quiet_seconds))["now"]
            looks.append((now() - before, there - (before + now()) / 2))
        return min(looks)[1]

    async def _listen(self) -> None:
        """Ask after the hand now and then, until it is gone."""
        while True:
            done, _ = await asyncio.wait({self._listener}, timeout=self._quiet_seconds / 3)
            if done:
                await self._listener
                return
            await self._within(self.ask({"do": "ping"}), self._quiet_seconds)

    async def _within(self, asked: Any, seconds: float) -> dict[str, Any]:
        try:
            async with asyncio.timeout(seconds):
                return dict(await asked)
        except TimeoutError:
            raise AwayError(f"{self.host.name} does not answer") from None

    async def _read(self, talk: Talk) -> None:
        """Pass on what the hand says, until it says no more."""
        try:
            while (line := await talk.readline()).endswith(b"\n"):  # half a line is the last of a connection that broke
                message = json.loads(line)
                data = await talk.readexactly(message[SIZE]) if SIZE in message else b""
                self.heard_at = now()
                if message["do"] == "answer":
                    waiting = self._answers.get(message["id"])
                    if waiting and not waiting.done():
                        waiting.set_result(message)
                else:
                    check_news(message)
                    self._hear(Frame(message, data))
        finally:  # nobody answers any more
            self._fail(AwayError(f"the connection to {self.host.name} broke"))
        words = await talk.said_last()
        raise AwayError(f"the connection to {self.host.name} broke{f': {last_words(words)}' if words else ''}")

    def _fail(self, error: EngineError) -> None:
        for waiting in self._answers.values():
            if not waiting.done():
                waiting.set_exception(error)
                waiting.exception()  # who could not even ask it does not look, and asyncio complains

    def _close(self) -> None:
        self._risen.clear()
        if self._talk:
            self._listener.cancel()
            self._talk.close()
        self._fail(AwayError(f"the connection to {self.host.name} broke"))
        if self.shell:
            self.shell.abort()
        self._talk = self.shell = None


def _agents_folder(hosts: Hosts) -> str:
    """Where hands are kept on a host."""
    return f"{hosts.folder}/hosts" if hosts.folder else _AGENTS


async def open_hand(shell: Shell, hosts: Hosts) -> Talk:
    """Have a hand on a host: carried there if it is not; raise EngineError if there is no Python for it, or no room."""
    talk = await shell.talk([hosts.python, "-I", "-c", BOOT, _agents_folder(hosts), package_name()])
    try:
        word = await asyncio.wait_for(_first_word(talk), _FIRST_WORD_SECONDS)
        if word and "wants" in word:
            data = await asyncio.to_thread(package_data)
            await talk.write(f"{len(data)}\n".encode() + data)
            word = await asyncio.wait_for(_first_word(talk), _FIRST_WORD_SECONDS)
        if word and "ready" in word:
            return talk
        said = last_words(await talk.said_last()) if not word else ""
    except TimeoutError:
        talk.close()
        raise AwayError(f"{shell.host} has not answered within {_FIRST_WORD_SECONDS:g} s") from None
    talk.close()
    raise _no_hand(shell.host, hosts.python, word, said)


async def _first_word(talk: Talk) -> dict[str, Any] | None:
    """What a hand says before anything else; None if there is none. A shell may have greeted us first."""
    for _ in range(_MOST_GREETINGS):
        line = await talk.readline()
        if not line:
            return None
        _, found, word = line.rpartition(MAGIC)
        if found:
            return dict(json.loads(word))
    return None


def _no_hand(host: str, python: str, word: dict[str, Any] | None, said: str) -> EngineError:
    if word and "old" in word:
        return RefusedError(
            f"{host} has Python {word['old']} as `{python}`, and 3.11 or newer is needed there",
            hint="name another one that it has: `ssh: {python: PATH}`",
        )
    if word and "refused" in word:
        full = os.strerror(28) in word["refused"]
        hint = "make room there, or name another folder: `ssh: {folder: PATH}`" if full else ""
        return RefusedError(f"drumline cannot be laid out on {host}: {word['refused']}", hint=hint)
    return RefusedError(
        f"{host} has no Python that works as `{python}`: {said}",
        hint="install Python 3.11 or newer there, or name the one that it has: `ssh: {python: PATH}`",
    )


def read_facts(found: dict[str, Any], shell: Shell, skew_seconds: float = 0.0) -> Facts:
    """What a hand has answered to its greeting."""
    return Facts(
        base=found["base"],
        boot=found["boot"],
        python=found["python"],
        cpus=found["cpus"],
        memory_bytes=found["memory_bytes"],
        gpus=tuple(found["gpus"]),
        address=shell.address,
        skew_seconds=skew_seconds,
    )
