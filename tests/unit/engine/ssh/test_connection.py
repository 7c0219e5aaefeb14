"""The way to a host, when it breaks: whoever waits is told, nobody complains, and it is tried again."""

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


class Mute:
    """An agent that hears and says nothing, until the connection breaks."""

    def __init__(self, last: bytes = b"", *, is_deaf: bool = False) -> None:
        self._last = last
        self._is_deaf = is_deaf
        self._broken = asyncio.Event()
        self.asked = asyncio.Event()

    def cut(self) -> None:
        self._broken.set()

    async def write(self, data: bytes) -> None:
        del data
        self.asked.set()
        if self._is_deaf:
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


class Door(HostConnection):
    """A way on which somebody is let in, or not, as a test likes."""

    def __init__(self, come_in: Callable[[Door], Awaitable[None]]) -> None:
        hosts = Hosts((HOST,), "unique", "tester", None)
        self.inbox: Inbox = asyncio.Queue()
        super().__init__(HOST, hosts, self.inbox)
        self._come_in = come_in

    async def _open(self) -> None:
        await self._come_in(self)

    def hear_from(self, channel: Mute) -> None:
        self._read_from(cast("Channel", channel))

    def received(self) -> list[Report]:
        """Take what is in the inbox."""
        messages = [self.inbox.get_nowait() for _ in range(self.inbox.qsize())]
        return [each.report for each in messages if isinstance(each, Received)]


def meet(go: Callable[[], Awaitable[None]]) -> list[str]:
    """What asyncio has to complain of."""
    complaints: list[str] = []

    async def watched() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, about: complaints.append(str(about["message"])))
        await go()
        gc.collect()

    asyncio.run(watched())
    gc.collect()
    return complaints


async def end(task: asyncio.Future[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("is_deaf", [False, True])
@pytest.mark.parametrize("last", [b"", b'{"do": "ans'])
def test_who_waits_for_an_answer_when_a_connection_breaks_is_told_and_nobody_complains(
    last: bytes, *, is_deaf: bool
) -> None:
    async def go() -> None:
        mute = Mute(last, is_deaf=is_deaf)

        async def come_in(door: Door) -> None:
            door.hear_from(mute)
            await door.ask({"do": "open"}, Done)

        door = Door(come_in)
        keeping = asyncio.ensure_future(door.run())
        await mute.asked.wait()
        asked = asyncio.ensure_future(door.ask({"do": "clock"}, Done))
        await asyncio.sleep(0)
        mute.cut()
        with pytest.raises(UnreachableError, match="the connection to h1 broke"):
            await asked
        await end(keeping)

    assert meet(go) == []


def test_who_waits_for_a_host_has_it_tried_again_at_once() -> None:
    tries: list[bool] = []

    async def come_in(door: Door) -> None:
        tries.append(True)
        if len(tries) < 9:
            asyncio.get_running_loop().call_soon(lambda: waiting.append(asyncio.ensure_future(door.wait_connected(60))))
            raise UnreachableError("h1 does not answer")
        door.hear_from(Mute())

    waiting: list[asyncio.Future[bool]] = []

    async def go() -> None:
        door = Door(come_in)
        keeping = asyncio.ensure_future(door.run())
        assert await door.wait_connected(15)  # all pauses together are longer
        assert all(await asyncio.gather(*waiting))
        await end(keeping)

    assert meet(go) == []


def test_a_host_that_has_let_us_in_is_waited_for_and_counts_as_heard_until_nothing_comes_of_it() -> None:
    async def go() -> None:
        inside, may_begin = asyncio.Event(), asyncio.Event()
        mute = Mute()

        async def come_in(door: Door) -> None:
            door.shell = cast("Shell", Any)
            door._let_in_at = door.heard_at + 1000
            inside.set()
            await may_begin.wait()
            door.shell = None
            door.hear_from(mute)

        door = Door(come_in)
        before = door.answered_at
        keeping = asyncio.ensure_future(door.run())
        await inside.wait()
        assert door.answered_at == before + 1000
        asyncio.get_running_loop().call_later(0.1, may_begin.set)
        assert await door.wait_connected(0)
        assert door.answered_at == before
        await end(keeping)

    assert meet(go) == []


class Speaker:
    """An agent that answers each question as a test likes, and says what is to be said before that."""

    def __init__(self, *spoken: bytes, answer: bytes = b"", has_end: bool = False) -> None:
        self._unheard = asyncio.Queue[bytes]()
        for line in spoken:
            self._unheard.put_nowait(line)
        if has_end:
            self._unheard.put_nowait(b"")
        self._answer = answer

    async def write(self, data: bytes) -> None:
        del data
        if self._answer:
            self._unheard.put_nowait(self._answer)

    async def readline(self, most_bytes: int) -> bytes:
        del most_bytes
        return await self._unheard.get()

    async def readexactly(self, size: int) -> bytes:
        assert size <= DATA_BYTES
        return bytes(size)

    async def stderr_tail(self) -> str:
        return ""

    def close(self) -> None:
        pass


EVENT = b'{"do": "event", "event": {"event": "RoomFound", "attempt": 0}}\n'


@pytest.mark.parametrize(
    "spoken",
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
    ids=lambda spoken: spoken[:60].decode(),
)
def test_a_host_that_breaks_the_protocol_is_given_up_after_a_few_connections(spoken: bytes) -> None:
    async def go() -> None:
        opened: list[Door] = []

        async def come_in(door: Door) -> None:
            opened.append(door)
            door.hear_from(cast("Any", Speaker(spoken, EVENT)))

        door = Door(come_in)
        await asyncio.wait_for(door.run(), PATIENCE_SECONDS)
        assert len(opened) == 3
        assert door.is_broken
        assert not door.is_up
        assert isinstance(door.trouble, MalformedError)
        assert "h1 has sent something" in door.trouble.message
        assert not await door.wait_connected(60)
        assert not door.received()

    assert meet(go) == []


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
        async def come_in(door: Door) -> None:
            door._numbers = count()
            door.hear_from(cast("Any", Speaker(answer=answer)))
            await door.ask({"do": "clock"}, ClockAnswer)

        door = Door(come_in)
        await asyncio.wait_for(door.run(), PATIENCE_SECONDS)
        assert door.is_broken

    assert meet(go) == []


def test_a_host_has_a_question_wait_only_for_a_place() -> None:
    async def go() -> None:
        answer = b'{"do": "answer", "id": 0, "error": "MustWait", "message": "waits"}\n'
        for do, error in (("place", MustWait), ("usage", EngineError), ("clock", EngineError)):
            door = Door(lambda _: asyncio.sleep(0))
            door.hear_from(cast("Any", Speaker(answer=answer)))
            with pytest.raises(error, match="h1: waits"):
                await door.ask({"do": do}, Done)
            door._close()

    assert meet(go) == []


def test_others_have_their_turn_while_a_host_says_much() -> None:
    piece = b'{"do": "log", "incarnation": "worker.0 0 0", "at": 0, "bytes": 1048576}\n'

    async def go() -> None:
        heard: list[Report] = []
        turns = 0
        door = Door(lambda _: asyncio.sleep(0))
        door.hear_from(cast("Any", Speaker(*[piece] * 100)))
        while len(heard) < 100:
            turns += 1
            await asyncio.sleep(0)
            heard += door.received()
        assert turns >= 100
        door._close()

    assert meet(go) == []
