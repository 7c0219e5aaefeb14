"""Copy the logs of pods into the run's folder while they run, and completely before their exit is reported."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

from drumline.engine.kubernetes.api import Api
from drumline.engine.kubernetes.api_errors import RefusedError, UnreachableError
from drumline.engine.kubernetes.backoff import Backoff
from drumline.engine.kubernetes.log_lines import Cursor, LogStream
from drumline.engine.kubernetes.logfile import LogFile
from drumline.errors import DrumlineError
from drumline.record import Record

# Each followed log is a connection to the API server and to a node. Further logs are polled.
MOST_FOLLOWED = 256
_MOST_ASKED = 16
_NOT_NOW = 400  # the container or the kubelet has not started
_LONGEST_ASKED_SECONDS = 30.0  # the longest delay that an overloaded server can request
_IS_REMOVED = "rpc error: code = NotFound"  # the container was removed after its log had been read
_MOST_ERRORS = 6  # errors of a kubelet, after which a log is given up
LONGEST_FINISH_SECONDS = 600.0
_BACKLOG_BYTES = 1 << 20  # by default a kubelet rotates a log at ten times as much


class RetryDelays(Record):
    """Delays before a retry, the first and the longest, and between polls."""

    first_seconds: float = 0.2
    longest_seconds: float = 4.0
    ask_seconds: float = 3.0


RETRY_DELAYS = RetryDelays()


class _Source:
    """A container's log and its local copy."""

    def __init__(self, pod: str, container: str, path: Path, delays: RetryDelays) -> None:
        self.pod, self.container = pod, container
        self.file = LogFile(path)
        self.backoff = Backoff(first=delays.first_seconds, longest=delays.longest_seconds)
        self.over = asyncio.Event()  # the container has ended
        self.is_whole = False  # the copy is complete, as of the last read
        self.trouble = ""  # why the copy is incomplete, if known

    async def pause(self, *, at_least: float = 0.0) -> None:
        """Wait before the next try, longer each time; stop waiting when the container ends."""
        seconds = max(at_least, self.backoff.next_seconds())
        if self.over.is_set():
            await asyncio.sleep(seconds)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.over.wait()
            self.backoff.reset()


class LogCollector:
    """Follows logs in the background; resumes each at its cursor after errors."""

    def __init__(self, api: Api, *, most_followed: int = MOST_FOLLOWED, delays: RetryDelays = RETRY_DELAYS) -> None:
        self._api = api
        self._free = most_followed
        self._delays = delays
        self._asking = asyncio.Semaphore(_MOST_ASKED)
        self._sources: dict[Path, tuple[_Source, asyncio.Task[None]]] = {}

    def follow(self, pod: str, container: str, path: Path) -> None:
        """Copy this log as it grows; idempotent."""
        if path not in self._sources:
            source = _Source(pod, container, path, self._delays)
            self._sources[path] = source, asyncio.create_task(self._collect(source))

    async def finish(
        self, pod: str, container: str, path: Path, seconds: float, *, longest_seconds: float = LONGEST_FINISH_SECONDS
    ) -> str:
        """Copy the rest of the log of a container that has ended; return why it is incomplete, empty if it is complete.

        Give up when nothing arrives for `seconds`, and after `longest_seconds` in any case.
        """
        self.follow(pod, container, path)
        source, task = self._sources[path]
        source.over.set()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + longest_seconds
        while not task.done():
            before, left = source.file.cursor, deadline - loop.time()
            await asyncio.wait([task], timeout=min(seconds, max(0.0, left)))
            if left <= 0.0 or (source.file.cursor == before and left >= seconds):
                task.cancel()
                break
        if not task.done() and deadline <= loop.time():
            return f"it was not complete after {longest_seconds:g} s"
        return "" if source.is_whole else source.trouble or f"no answer within {seconds:g} s"

    async def close(self) -> None:
        """Stop following."""
        tasks = [task for _, task in self._sources.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _collect(self, source: _Source) -> None:
        errors = 0
        ended_at: Cursor | None = None  # where a read ended
        while True:
            is_last = source.over.is_set()  # then a read that begins now gets the whole log
            is_followed = not is_last and self._free > 0
            try:
                if not is_followed:
                    async with self._asking:
                        kubelet_error = await self._read(source, follow=False)
                else:
                    kubelet_error = await self._follow(source)
            except UnreachableError as trouble:
                source.is_whole, source.trouble = source.is_whole and is_last, str(trouble)
                await source.pause(at_least=min(trouble.after_seconds or 0.0, _LONGEST_ASKED_SECONDS))
            except RefusedError as error:
                source.trouble = error.message
                errors += is_last
                if is_last and (error.status != _NOT_NOW or errors >= _MOST_ERRORS):
                    return  # the log is gone, or may not be read
                await source.pause()
            except (OSError, DrumlineError) as error:  # such as a full disk; the same bytes are read again
                source.trouble = str(error)
                await source.pause(at_least=1.0)
            else:
                source.trouble = kubelet_error
                # The last lines may be written shortly after a container has ended, and a server ends a read without an
                # error if its own connection is cut: the log is complete when two reads end at the same place.
                is_same = source.file.cursor == ended_at
                ended_at = ended_at if kubelet_error else source.file.cursor
                # A log that was followed to its end is complete, even if it is gone at the next read.
                has_ended = not kubelet_error and (is_followed or is_last)
                source.is_whole = has_ended or (source.is_whole and is_same)
                errors += is_last and bool(kubelet_error)
                if is_last and ((is_same and not kubelet_error) or errors >= _MOST_ERRORS):
                    return
                # The stream was cut without an error, or has ended.
                await source.pause(at_least=0.0 if self._free or is_last else self._delays.ask_seconds)

    async def _follow(self, source: _Source) -> str:
        self._free -= 1
        try:
            return await self._read(source, follow=True)
        finally:
            self._free += 1

    async def _read(self, source: _Source, *, follow: bool) -> str:
        """Read until the kubelet ends the stream; return its error message, empty if there is none."""
        file, begun_at = source.file, source.file.cursor
        stream = LogStream(begun_at)
        async with self._api.pod_log(source.pod, source.container, since=begun_at.since, follow=follow) as sent:
            followed = _until_silence(sent, self._delays.ask_seconds, lambda: file.cursor != begun_at)
            async for chunk in followed if follow else sent:
                pieces = stream.feed(chunk)
                file.append(pieces, has_gap=stream.has_gap)
                if pieces:
                    stream.has_gap = False
                    source.backoff.reset()
        pieces = stream.end()
        file.append(pieces, has_gap=stream.has_gap)
        return "" if follow and stream.kubelet_error.startswith(_IS_REMOVED) else stream.kubelet_error


async def _until_silence(
    chunks: AsyncIterator[bytes], seconds: float, is_ahead: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """Yield the chunks; raise UnreachableError if none comes for `seconds` after many new bytes.

    `is_ahead` returns whether there were new bytes. A kubelet that rotates a log while it still sends the old file
    continues with that file until the next rotation. A new request reads the new file.
    """
    brought = 0
    while True:
        try:
            async with asyncio.timeout(seconds if brought >= _BACKLOG_BYTES and is_ahead() else None):
                chunk = await anext(chunks)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise UnreachableError("read again, since the log may have been rotated") from None
        brought += len(chunk)
        yield chunk
