"""When a connection to a host breaks, callers get an error, no task remains, and the host is tried again."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from typing import Any, cast

import pytest

from drumline.engine.agent.answers import ClockAnswer, Done
from drumline.engine.agent.client import Channel
from drumline.engine.agent.errors import MalformedError, UnreachableError
from drumline.engine.agent.frames import DATA_BYTES
from drumline.engine.protocol import MustWait
from drumline.engine.ssh.connection import HostConnection
from drumline.engine.ssh.inbox import Inbox, Received
from drumline.engine.ssh.plan_options import Host, Hosts
from drumline.engine.ssh.reports import Report
from drumline.engine.ssh.shell import Shell
from drumline.errors import EngineError
from scaffold.waiting import PATIENCE_SECONDS

HOST = Host("h1")


class SilentChannel:
    """The channel of an agent that sends nothing, until the connection breaks."""

    def __init__(self, last: bytes = b"", *, blocks_writes: bool = False) -> None:
        self._last = last
        self._blocks_writes = blocks_writes
        self._broken = asyncio.Event()
        self.asked = asyncio.Event()

    def cut(self) -> None:
        self._broken.set()

    async def write(self, data: bytes) -> None:
        del data
        self.asked.set()
        if self._blocks_writes:
            await self._broken.wait()
            raise UnreachableError("the connection to h1 broke")

    async def readline(self, most_bytes: int) -> bytes:
        del most_bytes
        await self._broken.wait()
        last, self._last = self._last, b""
        return last

    async def stderr_tail(self) -> str:
        return ""

    def close(self) -> None:
        self.cut()


class ScriptedConnection(HostConnection):
    """A connection that is opened by a function of the test."""

    def __init__(self, open_connection: Callable[[ScriptedConnection], Awaitable[None]]) -> None:
        hosts = Hosts((HOST,), "unique", "tester", None)
        self.inbox: Inbox = asyncio.Queue()
        super().__init__(HOST, hosts, self.inbox)
        self._open_connection = open_connection

    async def _open(self) -> None:
        await self._open_connection(self)

    def read_from(self, channel: SilentChannel) -> None:
        self._read_from(cast("Channel", channel))

    def received(self) -> list[Report]:
        """Return all reports in the inbox, and empty it."""
        messages = [self.inbox.get_nowait() for _ in range(self.inbox.qsize())]
        return [each.report for each in messages if isinstance(each, Received)]


def run_watched(go: Callable[[], Awaitable[None]]) -> list[str]:
    """Run a coroutine; return the errors that asyncio reported about its tasks."""
    errors: list[str] = []

    async def watched() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, about: errors.append(str(about["message"])))
        await go()
        gc.collect()

    asyncio.run(watched())
    gc.collect()
    return errors


async def end(task: asyncio.Future[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("blocks_writes", [False, True])
@pytest.mark.parametrize("last", [b"", b'{"do": "ans'])
def test_a_caller_that_waits_for_an_answer_gets_an_error_when_the_connection_breaks(
    last: bytes, *, blocks_writes: bool
) -> None:
    async def go() -> None:
        channel = SilentChannel(last, blocks_writes=blocks_writes)

        async def open_connection(connection: ScriptedConnection) -> None:
            connection.read_from(channel)
            await connection.ask({"do": "open"}, Done)

        connection = ScriptedConnection(open_connection)
        running = asyncio.ensure_future(connection.run())
        await channel.asked.wait()
        asked = asyncio.ensure_future(connection.ask({"do": "clock"}, Done))
        await asyncio.sleep(0)
        channel.cut()
        with pytest.raises(UnreachableError, match="the connection to h1 broke"):
            await asked
        await end(running)

    assert run_watched(go) == []


def test_a_connection_is_retried_at_once_while_a_caller_waits_for_the_host() -> None:
    tries: list[bool] = []

    async def open_connection(connection: ScriptedConnection) -> None:
        tries.append(True)
        if len(tries) < 9:
            asyncio.get_running_loop().call_soon(
                lambda: waiting.append(asyncio.ensure_future(connection.wait_connected(60)))
            )
            raise UnreachableError("h1 does not answer")
        connection.read_from(SilentChannel())

    waiting: list[asyncio.Future[bool]] = []

    async def go() -> None:
        connection = ScriptedConnection(open_connection)
        running = asyncio.ensure_future(connection.run())
        assert await connection.wait_connected(15)  # all pauses together are longer
        assert all(await asyncio.gather(*waiting))
        await end(running)

    assert run_watched(go) == []


def test_a_host_that_accepted_the_login_counts_as_reachable_until_the_attempt_fails() -> None:
    async def go() -> None:
        inside, may_begin = asyncio.Event(), asyncio.Event()
        channel = SilentChannel()

        async def open_connection(connection: ScriptedConnection) -> None:
            connection.shell = cast("Shell", Any)
            connection._logged_in_at = connection.received_at + 1000
            inside.set()
            await may_begin.wait()
            connection.shell = None
            connection.read_from(channel)

        connection = ScriptedConnection(open_connection)
        before = connection.answered_at
        running = asyncio.ensure_future(connection.run())
        await inside.wait()
        assert connection.answered_at == before + 1000
        asyncio.get_running_loop().call_later(0.1, may_begin.set)
        assert await connection.wait_connected(0)
        assert connection.answered_at == before
        await end(running)

    assert run_watched(go) == []


class AnsweringChannel:
    """The channel of an agent that sends some lines at first, and the same answer to each request."""

    def __init__(self, *sent: bytes, answer: bytes = b"", has_end: bool = False) -> None:
        self._unread = asyncio.Queue[bytes]()
        for line in sent:
            self._unread.put_nowait(line)
        if has_end:
            self._unread.put_nowait(b"")
        self._answer = answer

    async def write(self, data: bytes) -> None:
        del data
        if self._answer:
            self._unread.put_nowait(self._answer)

    async def readline(self, most_bytes: int) -> bytes:
        del most_bytes
        return await self._unread.get()

    async def readexactly(self, size: int) -> bytes:
        assert size <= DATA_BYTES
        return bytes(size)

    async def stderr_tail(self) -> str:
        return ""

    def close(self) -> None:
        pass


EVENT = b'{"do": "event", "event": {"event": "RoomFound", "attempt": 0}}\n'


@pytest.mark.parametrize(
    "sent",
    [
        b"no JSON\n",
        b"[]\n",
        b"{}\n",
        b'{"do": 1}\n',
        b'{"do": "answer", "id": []}\n',
        b'{"do": "event"}\n',
        b'{"do": "event", "event": {"event": "StopRequested"}}\n',
        b'{"do": "log", "incarnation": "worker.0 0 0", "at": -1}\n',
        b'{"do": "log", "incarnation": "worker.0 0 0", "at": 0, "bytes": 1000000000000}\n',
        b'{"do": "log", "incarnation": "worker.0 0 0", "at": 0, "bytes": -5}\n',
        b'{"do": "log", "incarnation": "worker.0 0 0", "at": 0, "bytes": true}\n',
        b'{"do": "event", "event": {"event": "RoomFound", "attempt": NaN}}\n',
        b"[" * 100_000 + b"\n",
    ],
    ids=lambda sent: sent[:60].decode(),
)
def test_a_host_that_breaks_the_protocol_is_not_used_after_three_connections(sent: bytes) -> None:
    async def go() -> None:
        opened: list[ScriptedConnection] = []

        async def open_connection(connection: ScriptedConnection) -> None:
            opened.append(connection)
            connection.read_from(cast("Any", AnsweringChannel(sent, EVENT)))

        connection = ScriptedConnection(open_connection)
        await asyncio.wait_for(connection.run(), PATIENCE_SECONDS)
        assert len(opened) == 3
        assert connection.is_broken
        assert not connection.is_up
        assert isinstance(connection.trouble, MalformedError)
        assert "h1 has sent something" in connection.trouble.message
        assert not await connection.wait_connected(60)
        assert not connection.received()

    assert run_watched(go) == []


@pytest.mark.parametrize(
    "answer",
    [
        b'{"do": "answer", "id": 0, "now": "soon"}\n',
        b'{"do": "answer", "id": 0}\n',
        b'{"do": "answer", "id": 0, "error": 5}\n',
        b'{"do": "answer", "id": 0, "now": 1, "time": 1, "more": 2}\n',
    ],
)
def test_an_answer_of_another_kind_ends_the_connection(answer: bytes) -> None:
    async def go() -> None:
        async def open_connection(connection: ScriptedConnection) -> None:
            connection._numbers = count()
            connection.read_from(cast("Any", AnsweringChannel(answer=answer)))
            await connection.ask({"do": "clock"}, ClockAnswer)

        connection = ScriptedConnection(open_connection)
        await asyncio.wait_for(connection.run(), PATIENCE_SECONDS)
        assert connection.is_broken

    assert run_watched(go) == []


def test_only_the_answer_to_a_placement_request_may_be_must_wait() -> None:
    async def go() -> None:
        answer = b'{"do": "answer", "id": 0, "error": "MustWait", "message": "waits"}\n'
        for do, error in (("place", MustWait), ("usage", EngineError), ("clock", EngineError)):
            connection = ScriptedConnection(lambda _: asyncio.sleep(0))
            connection.read_from(cast("Any", AnsweringChannel(answer=answer)))
            with pytest.raises(error, match="h1: waits"):
                await connection.ask({"do": do}, Done)
            connection._close()

    assert run_watched(go) == []


def test_other_tasks_run_while_a_host_sends_much() -> None:
    piece = b'{"do": "log", "incarnation": "worker.0 0 0", "at": 0, "bytes": 1048576}\n'

    async def go() -> None:
        received: list[Report] = []
        turns = 0
        connection = ScriptedConnection(lambda _: asyncio.sleep(0))
        connection.read_from(cast("Any", AnsweringChannel(*[piece] * 100)))
        while len(received) < 100:
            turns += 1
            await asyncio.sleep(0)
            received += connection.received()
        assert turns >= 100
        connection._close()

    assert run_watched(go) == []
