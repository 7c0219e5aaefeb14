"""The thread that talks to other machines, so that the supervisor's loop never waits for an answer.

Errands go out as coroutines; what they bring back is dealt with by the supervisor's own loop, one after the other, so
that nothing but this module knows of two threads.
"""

from __future__ import annotations

import asyncio
import os
import threading
import traceback
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop


T = TypeVar("T")
Errand = Coroutine[Any, Any, None]
_LEAVING_SECONDS = 5.0


class Courier:
    """Owns the thread, its asyncio loop, and the pipe by which it wakes the supervisor's."""

    def __init__(self, loop: AbstractEventLoop, close: Callable[[], Errand], *, name: str) -> None:
        self._loop = loop
        self._close = close
        self._news: deque[Callable[[], object]] = deque()
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(self._wake, False)
        loop.add_reader(self._woken, self._deal)
        self._there = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._there.run_forever, name=name, daemon=True)
        self._thread.start()
        self.is_open = True

    def send(self, errand: Errand) -> Future[None]:
        """Have this done over there; what goes wrong that nobody expected is said in the supervisor's log."""
        return asyncio.run_coroutine_threadsafe(_safely(errand), self._there)

    def bring(self, call: Callable[..., object], *news: object) -> None:
        """From over there: have this called here, after all that was brought before."""
        self._news.append(partial(call, *news))
        with suppress(BlockingIOError):  # it is awake
            if self.is_open:  # else nobody deals with it, and the pipe may be somebody else's by now
                os.write(self._wake, b"!")

    async def deliver(self, call: Callable[..., object], *news: object) -> None:
        """From over there: have this called here, and wait until it was.

        What arrives faster than it is dealt with waits at its source, and is not piled up in memory.
        """
        dealt = asyncio.Event()

        def deal() -> None:
            try:
                call(*news)
            finally:
                with suppress(RuntimeError):  # that thread has ended
                    self._there.call_soon_threadsafe(dealt.set)

        self.bring(deal)
        await dealt.wait()

    def wait(self, errand: Errand, seconds: float) -> bool:
        """Wait here until this is done; False if it takes longer."""
        done = self.send(errand)
        with suppress(TimeoutError):
            done.result(seconds)
            return True
        done.cancel()
        return False

    def begin(self, errand: Coroutine[Any, Any, T]) -> Future[T]:
        """Have this done over there; what it brings or raises is there when it is done."""
        return asyncio.run_coroutine_threadsafe(errand, self._there)

    def ask(self, errand: Coroutine[Any, Any, T], seconds: float) -> T:
        """Wait here for what this brings; raise what it raises, and TimeoutError if it takes longer."""
        done = self.begin(errand)
        try:
            return done.result(seconds)
        except TimeoutError:
            done.cancel()
            raise

    def close(self) -> None:
        """End the thread with all that it does."""
        if not self.is_open:
            return
        self.is_open = False
        self.wait(self._cancel_all(), _LEAVING_SECONDS)
        self._there.call_soon_threadsafe(self._there.stop)
        self._thread.join(_LEAVING_SECONDS)
        if not self._thread.is_alive():
            self._there.close()
        self._loop.remove_reader(self._woken)
        os.close(self._woken)
        os.close(self._wake)

    async def _cancel_all(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        while tasks:
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.sleep(0)  # a generator that a task left open is closed by a task of its own, which begins now
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
        await self._close()
        await self._there.shutdown_asyncgens()

    def _deal(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._woken, 65536)
        for _ in range(len(self._news)):
            self._news.popleft()()


async def _safely(errand: Errand) -> None:
    try:
        await errand
    except Exception:  # noqa: BLE001 - a thread that dies in silence would be missed by nobody
        traceback.print_exc()
