"""Logs of pods, brought into the run's folder while the pods live, and to their end before an end is told."""

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

# Each log that is followed is a connection, to the API server and on to a node. Whoever comes after so many is asked
# now and then for what is new.
MOST_FOLLOWED = 256
_MOST_ASKED = 16
_NOT_NOW = 400  # of a container that has not begun, or a kubelet that has just begun itself
_LONGEST_ASKED_SECONDS = 30.0  # by a server that has too much to do
_IS_REMOVED = "rpc error: code = NotFound"  # the container, since who follows its log has read all there was
_MOST_COMPLAINTS = 6  # of a kubelet that may only be busy, before it is believed
LONGEST_FINISH_SECONDS = 600.0
_BACKLOG_BYTES = 1 << 20  # unless told otherwise, a kubelet begins a new file at ten times as much


class RetryDelays(Record):
    """How long to wait: before the next try, first and at most, and until whoever brings nothing by itself is asked."""

    first_seconds: float = 0.2
    longest_seconds: float = 4.0
    ask_seconds: float = 3.0


RETRY_DELAYS = RetryDelays()


class _Source:
    """A container's log, and how far it is here."""

    def __init__(self, pod: str, container: str, path: Path, delays: RetryDelays) -> None:
        self.pod, self.container = pod, container
        self.file = LogFile(path)
        self.backoff = Backoff(first=delays.first_seconds, longest=delays.longest_seconds)
        self.over = asyncio.Event()  # nothing more is written to it
        self.is_whole = False  # up to the end, as it was when it was last looked at
        self.trouble = ""  # why not, if somebody said

    async def pause(self, *, at_least: float = 0.0) -> None:
        """Wait before the next try, longer each time, and not beyond the end of what is waited for."""
        seconds = max(at_least, self.backoff.next_seconds())
        if self.over.is_set():
            await asyncio.sleep(seconds)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.over.wait()
            self.backoff.reset()


class LogCollector:
    """Follows logs in the background, each from where it was left, through whatever breaks on the way."""

    def __init__(self, api: Api, *, most_followed: int = MOST_FOLLOWED, delays: RetryDelays = RETRY_DELAYS) -> None:
        self._api = api
        self._free = most_followed
        self._delays = delays
        self._asking = asyncio.Semaphore(_MOST_ASKED)
        self._sources: dict[Path, tuple[_Source, asyncio.Task[None]]] = {}

    def follow(self, pod: str, container: str, path: Path) -> None:
        """Bring this log here as it grows, if that is not done already."""
        if path not in self._sources:
            source = _Source(pod, container, path, self._delays)
            self._sources[path] = source, asyncio.create_task(self._collect(source))

    async def finish(
        self, pod: str, container: str, path: Path, seconds: float, *, longest_seconds: float = LONGEST_FINISH_SECONDS
    ) -> str:
        """Bring here what is left of the log of a container that has ended; say why that is not all, if so.

        It is given up when nothing comes for `seconds`, and after `longest_seconds` in any case: a node may send
        bytes for ever.
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
            return f"it did not end within {longest_seconds:g} s"
        return "" if source.is_whole else source.trouble or f"nobody answered within {seconds:g} s"

    async def close(self) -> None:
        """Follow nothing any more."""
        tasks = [task for _, task in self._sources.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _collect(self, source: _Source) -> None:
        complaints = 0
        ended_at: Cursor | None = None  # where a read came to its end
        while True:
            is_last = source.over.is_set()  # what is read after this is all there is
            is_followed = not is_last and self._free > 0
            try:
                if not is_followed:
                    async with self._asking:
                        complaint = await self._read(source, follow=False)
                else:
                    complaint = await self._follow(source)
            except UnreachableError as trouble:
                source.is_whole, source.trouble = source.is_whole and is_last, str(trouble)
                await source.pause(at_least=min(trouble.after_seconds or 0.0, _LONGEST_ASKED_SECONDS))
            except RefusedError as error:
                source.trouble = error.message
                complaints += is_last
                if is_last and (error.status != _NOT_NOW or complaints >= _MOST_COMPLAINTS):
                    return  # it is gone, or nobody may read it
                await source.pause()
            except (OSError, DrumlineError) as error:  # a full disk, say; what could not be kept comes again
                source.trouble = str(error)
                await source.pause(at_least=1.0)
            else:
                source.trouble = complaint
                # A runtime writes the last lines a moment after a container has ended, and a server that is cut off
                # behind itself ends without a word: the end is where two reads end.
                is_same = source.file.cursor == ended_at
                ended_at = ended_at if complaint else source.file.cursor
                # Who has followed it to where it ended has all of it, though it may be gone when it is looked at again.
                has_ended = not complaint and (is_followed or is_last)
                source.is_whole = has_ended or (source.is_whole and is_same)
                complaints += is_last and bool(complaint)
                if is_last and ((is_same and not complaint) or complaints >= _MOST_COMPLAINTS):
                    return
                # Cut off by who does not say so, or ended, which will be heard in a moment.
                await source.pause(at_least=0.0 if self._free or is_last else self._delays.ask_seconds)

    async def _follow(self, source: _Source) -> str:
        self._free -= 1
        try:
            return await self._read(source, follow=True)
        finally:
            self._free += 1

    async def _read(self, source: _Source, *, follow: bool) -> str:
        """Read on until the kubelet has no more; return what it had to complain of."""
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
        return "" if follow and stream.remark.startswith(_IS_REMOVED) else stream.remark


async def _until_silence(
    chunks: AsyncIterator[bytes], seconds: float, is_ahead: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """All of these; but raise AwayError at a silence for so long, if much came before it, and not all known already.

    A kubelet that begins a new file while it still sends the old one stays with the old one, until it begins yet
    another: what is written meanwhile would never be seen. Whoever asks again is given the new one.
    """
    brought = 0
    while True:
        try:
            async with asyncio.timeout(seconds if brought >= _BACKLOG_BYTES and is_ahead() else None):
                chunk = await anext(chunks)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise UnreachableError("it is asked again, for a new file may have been begun") from None
        brought += len(chunk)
        yield chunk
