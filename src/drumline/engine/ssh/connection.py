"""The connection to one host and its agent; it is opened again whenever it breaks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from itertools import count
from typing import Any, TypeVar

from drumline.engine.agent.answers import ClockAnswer, FactsAnswer, read_answer
from drumline.engine.agent.bootstrap import FIRST_LINE_SECONDS
from drumline.engine.agent.client import Channel
from drumline.engine.agent.errors import MalformedError, RefusedError, UnreachableError, error_from_answer
from drumline.engine.agent.frames import Frame, read_frame
from drumline.engine.agent.package import package_name
from drumline.engine.ssh.agents import (
    HostFacts,
    Route,
    agent_folder,
    open_agent,
    packages_folder,
    read_facts,
    runs_folder,
)
from drumline.engine.ssh.inbox import Connected, Inbox, Received
from drumline.engine.ssh.plan_options import Host, Hosts
from drumline.engine.ssh.reports import read_report
from drumline.engine.ssh.shell import Shell, connect
from drumline.engine.untrusted import last_line
from drumline.errors import EngineError, InputError
from drumline.runtime.keeper import boot_id, now

T = TypeVar("T")

_CONNECT_SECONDS = 15.0
_CLOCK_READINGS = 3
_QUIET_SECONDS = 15.0  # without an answer, after which the host is connected again
_PAUSES_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)
_MOST_MALFORMED = 3  # connections on which a host may break the protocol before it is not tried again


class HostConnection:
    """The connection to the agent of one host; puts the agent's reports into the inbox."""

    def __init__(self, host: Host, hosts: Hosts, inbox: Inbox) -> None:
        self.host = host
        self._hosts = hosts
        self._inbox = inbox
        self._quiet_seconds = min(_QUIET_SECONDS, hosts.lost_seconds / 2)
        self._numbers = count()
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._malformed = 0  # connections that were closed since the host broke the protocol
        self._channel: Channel | None = None
        self.shell: Shell | None = None
        self.facts: HostFacts | None = None
        self.trouble: EngineError | None = None  # why there is no agent
        self.received_at = now()
        self._logged_in_at = 0.0
        self._connected = asyncio.Event()
        self._wanted = asyncio.Event()

    @property
    def answered_at(self) -> float:
        """Return when the host last sent something; an open connection counts as now."""
        return max(self.received_at, self._logged_in_at) if self.shell else self.received_at

    @property
    def is_up(self) -> bool:
        """Return whether an agent is connected and has opened the run."""
        return self._connected.is_set()

    @property
    def is_broken(self) -> bool:
        """Return whether the host broke the protocol so often that it is not tried again."""
        return self._malformed >= _MOST_MALFORMED

    @property
    def is_hindered(self) -> bool:
        """Return whether the host could not be reached, and is tried again."""
        return not self.is_up and self.shell is None and self.trouble is not None

    @property
    def skew_seconds(self) -> float:
        """Return the seconds by which the host's clock is ahead of this machine's."""
        return self.facts.skew_seconds if self.facts else 0.0

    @property
    def route(self) -> Route | None:
        """Return how other agents are started on the host; None if it is not connected."""
        return Route(self.shell, self.facts.base) if self.is_up and self.shell and self.facts else None

    @property
    def received_bytes(self) -> int:
        """Return the number of bytes that counted commands have sent over this connection."""
        return self.shell.received_bytes if self.shell else 0

    async def run(self) -> None:
        """Keep an agent connected until this is cancelled or the host is broken."""
        tries = 0
        while not self.is_broken:
            try:
                await self._open()
                self._connected.set()
                self._inbox.put_nowait(Connected(self.host.name))
                tries = 0
                await self._watch()
            except EngineError as error:
                self.trouble = self._why_refused() or error
            except InputError as error:
                self.trouble = RefusedError(error.message, hint=error.hint)
            except Exception as error:  # noqa: BLE001 - no answer of a host may end the supervisor
                self.trouble = MalformedError(self.host.name, repr(error))
            finally:
                self._malformed += isinstance(self.trouble, MalformedError)
                self._close()
            # `asyncio.wait_for` of Python 3.11 loses a cancellation that arrives together with the awaited result.
            with suppress(TimeoutError):  # while a caller waits for the host, it is tried again at once
                async with asyncio.timeout(_PAUSES_SECONDS[min(tries, len(_PAUSES_SECONDS) - 1)]):
                    await self._wanted.wait()
            self._wanted.clear()
            tries += 1

    async def wait_connected(self, seconds: float) -> bool:
        """Wait until `is_up`; return False after `seconds`, or later if ssh is connected and the agent is starting."""
        if self.is_broken:
            await asyncio.sleep(min(seconds, _PAUSES_SECONDS[0]))
            return False
        self._wanted.set()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._connected.wait(), seconds)
        until = now() + min(FIRST_LINE_SECONDS, self._hosts.lost_seconds)
        while self.shell and not self.is_up and now() < until:
            await asyncio.sleep(_PAUSES_SECONDS[0])
        return self.is_up

    async def ask(self, message: dict[str, Any], kind: type[T]) -> T:
        """Send a request and return its answer as a record of this kind; raise the agent's error if it is one.

        Raise UnreachableError if the connection breaks, and MustWait only for `place`. For an answer of another kind,
        raise MalformedError and close the connection.
        """
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        try:
            await self.send({**message, "id": number})
            found: dict[str, Any] = await answer
        finally:
            self._answers.pop(number, None)
        if "error" in found:
            error = error_from_answer(self.host.name, found, may_wait=message["do"] == "place")
        else:
            try:
                return read_answer(kind, found)
            except ValueError as reason:
                error = MalformedError(self.host.name, reason)
        if isinstance(error, MalformedError):
            self.refuse(error)
        raise error

    def refuse(self, error: MalformedError) -> None:
        """Close the connection: the host has broken the protocol."""
        if self._channel and not self._refused.done():
            self._refused.set_exception(error)
            self._refused.exception()  # marked as retrieved, since it is not awaited while a connection is opened

    async def send(self, message: dict[str, Any], data: bytes = b"") -> None:
        """Send a message without waiting for an answer; raise UnreachableError if no agent is connected."""
        if self._channel is None:
            raise UnreachableError(f"{self.host.name} does not answer")
        await self._channel.write(Frame(message, data).encode())

    async def _open(self) -> None:
        """Connect to the host, start an agent there and open the run."""
        seconds = min(_CONNECT_SECONDS, max(1.0, self._hosts.lost_seconds))
        self.shell = await connect(self.host.name, config=self._hosts.config, seconds=seconds)
        self._logged_in_at = now()
        self._read_from((await open_agent(self.shell, self._hosts, keep=True)).channel)
        runtime = f"{packages_folder(self._hosts)}/{package_name()}/runtime"
        opening: dict[str, Any] = {
            "do": "open",
            "run": self._hosts.unique,
            "host": agent_folder(self.host),
            "folder": runs_folder(self._hosts),
            "lease": self._hosts.lease_seconds,
            "lost": self._hosts.lost_seconds,
        }
        allowed = {"cpus": self.host.cpus, "memory_bytes": self.host.memory_bytes, "gpus": self.host.gpus}
        opening |= {"runtime": runtime, "allowed": allowed}
        found = await self._within(self.ask(opening, FactsAnswer), FIRST_LINE_SECONDS)
        skew = 0.0 if found.boot == boot_id() else await self._skew()
        self.facts = read_facts(found, self.shell.address, skew)

    def _read_from(self, channel: Channel) -> None:
        self._channel = channel
        self._refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._reading = asyncio.ensure_future(self._read(channel))

    async def _skew(self) -> float:
        """Return the seconds by which the host's clock is ahead, from the quickest of several answers."""
        readings: list[tuple[float, float]] = []
        for _ in range(_CLOCK_READINGS):
            before = now()
            there = await self._within(self.ask({"do": "clock"}, ClockAnswer), self._quiet_seconds)
            readings.append((now() - before, there.now - (before + now()) / 2))
        return min(readings)[1]

    async def _watch(self) -> None:
        """Ask the agent for its clock at intervals until it does not answer."""
        while True:
            done, _ = await asyncio.wait(
                {self._reading, self._refused}, timeout=self._quiet_seconds / 3, return_when=asyncio.FIRST_COMPLETED
            )
            for each in done:
                await each
                return
            await self._within(self.ask({"do": "clock"}, ClockAnswer), self._quiet_seconds)

    async def _within(self, asked: Awaitable[T], seconds: float) -> T:
        try:
            async with asyncio.timeout(seconds):
                return await asked
        except TimeoutError:
            raise UnreachableError(f"{self.host.name} does not answer") from None

    async def _read(self, channel: Channel) -> None:
        """Read the agent's frames; raise UnreachableError when they end, MalformedError for an invalid one."""
        try:
            while frame := await read_frame(channel):
                self.received_at = now()
                if frame.message["do"] == "answer":
                    waiting = self._answers.get(frame.message.get("id", -1))
                    if waiting and not waiting.done():
                        waiting.set_result(frame.message)
                else:
                    self._inbox.put_nowait(Received(self.host.name, read_report(frame)))
                    await asyncio.sleep(0)  # lets other tasks run, however much a host sends
        except ValueError as error:
            raise MalformedError(self.host.name, error) from None
        finally:  # no more answers will arrive
            self._fail(UnreachableError(f"the connection to {self.host.name} broke"))
        words = await channel.stderr_tail()
        raise UnreachableError(f"the connection to {self.host.name} broke{f': {last_line(words)}' if words else ''}")

    def _why_refused(self) -> MalformedError | None:
        """Return how the host broke the protocol, None if it did not.

        The error of a pending request only states that the connection broke.
        """
        for each in (self._reading, self._refused) if self._channel else ():
            if each.done() and not each.cancelled() and isinstance(error := each.exception(), MalformedError):
                return error
        return None

    def _fail(self, error: EngineError) -> None:
        for waiting in self._answers.values():
            if not waiting.done():
                waiting.set_exception(error)
                waiting.exception()  # marked as retrieved: a request that could not be sent is not awaited

    def _close(self) -> None:
        self._connected.clear()
        if self._channel:
            self._reading.cancel()
            self._channel.close()
        self._fail(UnreachableError(f"the connection to {self.host.name} broke"))
        if self.shell:
            self.shell.abort()
        self._channel = self.shell = None
