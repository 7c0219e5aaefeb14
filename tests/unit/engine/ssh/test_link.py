"""The way to a host, when it breaks: whoever waits is told, nobody complains, and it is tried again."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, cast

import pytest

from drumline.engine.ssh.answers import Done
from drumline.engine.ssh.link import Link
from drumline.engine.ssh.refusal import AwayError
from drumline.engine.ssh.shell import Shell, Talk
from drumline.plan.hosts import Host, Hosts

HOST = Host("h1")


class Mute:
    """A hand that hears and says nothing, until the connection breaks."""

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
            raise AwayError("the connection to h1 broke")

    async def readline(self, most_bytes: int) -> bytes:
        del most_bytes
        await self._broken.wait()
        last, self._last = self._last, b""
        return last

    async def said_last(self) -> str:
        return ""

    def close(self) -> None:
        self.cut()


class Door(Link):
    """A way on which somebody is let in, or not, as a test likes."""

    def __init__(self, come_in: Callable[[Door], Awaitable[None]]) -> None:
        hosts = Hosts((HOST,), "unique", "tester", None)
        super().__init__(HOST, hosts, hear=lambda _: None, rises=lambda: None)
        self._come_in = come_in

    async def _open(self) -> None:
        await self._come_in(self)

    def hear_from(self, talk: Mute) -> None:
        self._hear_from(cast("Talk", talk))


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
            await door.ask({"do": "hello"}, Done)

        door = Door(come_in)
        keeping = asyncio.ensure_future(door.keep())
        await mute.asked.wait()
        asked = asyncio.ensure_future(door.ask({"do": "ping"}, Done))
        await asyncio.sleep(0)
        mute.cut()
        with pytest.raises(AwayError, match="the connection to h1 broke"):
            await asked
        await end(keeping)

    assert meet(go) == []


def test_who_waits_for_a_host_has_it_tried_again_at_once() -> None:
    tries: list[bool] = []

    async def come_in(door: Door) -> None:
        tries.append(True)
        if len(tries) < 9:
            asyncio.get_running_loop().call_soon(lambda: waiting.append(asyncio.ensure_future(door.rise(60))))
            raise AwayError("h1 does not answer")
        door.hear_from(Mute())

    waiting: list[asyncio.Future[bool]] = []

    async def go() -> None:
        door = Door(come_in)
        keeping = asyncio.ensure_future(door.keep())
        assert await door.rise(15)  # all pauses together are longer
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
        keeping = asyncio.ensure_future(door.keep())
        await inside.wait()
        assert door.answered_at == before + 1000
        asyncio.get_running_loop().call_later(0.1, may_begin.set)
        assert await door.rise(0)
        assert door.answered_at == before
        await end(keeping)

    assert meet(go) == []
