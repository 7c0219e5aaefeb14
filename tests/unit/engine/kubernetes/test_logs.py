"""The log collector, with a fake API server: broken connections, errors, and more pods than may be followed."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest

from drumline.engine.kubernetes import logs
from drumline.engine.kubernetes.api import Api
from drumline.engine.kubernetes.api_errors import RefusedError, UnreachableError
from drumline.engine.kubernetes.logs import LogCollector, RetryDelays
from drumline.run.traces import CURSOR
from scaffold.kubelet import BEGAN_NS, Kubelet

LONG_SECONDS = 30.0
QUICK = RetryDelays(0.001, 0.01, 0.01)


class Server:
    """A server of one container's log, with a list of failures for its requests."""

    def __init__(self) -> None:
        self.kubelet = Kubelet()
        # An exception to raise, or the number of bytes after which the connection is cut.
        self.failures: list[Exception | int] = []
        self.error_reads = 0  # so many whole reads contain only an error line of the kubelet
        self.silent_cuts: list[int] = []  # after so many bytes a read ends, as if the log were complete
        self.asked: list[tuple[str, bool]] = []
        self.is_over = asyncio.Event()
        self.changed = asyncio.Event()
        self.followed = self.most_followed = 0

    def write(self, line: bytes) -> None:
        self.kubelet.write(BEGAN_NS + 400_000_000 * len(self.kubelet.entries), line)
        self.changed.set()

    @asynccontextmanager
    async def pod_log(
        self, pod: str, container: str, *, since: str = "", follow: bool = True
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        del pod, container
        self.asked.append((since, follow))
        failure = self.failures.pop(0) if self.failures else None
        if isinstance(failure, Exception):
            raise failure
        self.followed += follow
        self.most_followed = max(self.most_followed, self.followed)
        try:
            yield self._chunks(since, follow=follow, cut=failure)
        finally:
            self.followed -= follow

    async def _chunks(self, since: str, *, follow: bool, cut: int | None) -> AsyncIterator[bytes]:
        sent = 0
        if not follow and self.error_reads:
            self.error_reads -= 1
            yield b"unable to retrieve container logs"
            return
        while True:
            data = self.kubelet.send(since)
            if not follow and self.silent_cuts:
                yield data[: self.silent_cuts.pop(0)]
                return
            if cut is not None and len(data) >= cut:
                yield data[sent:cut]
                raise UnreachableError("the connection was cut")
            if len(data) > sent:
                yield data[sent:]
                sent = len(data)
            if not follow or self.is_over.is_set():
                return
            self.changed.clear()
            over, changed = asyncio.ensure_future(self.is_over.wait()), asyncio.ensure_future(self.changed.wait())
            await asyncio.wait([over, changed], return_when=asyncio.FIRST_COMPLETED)
            over.cancel()
            changed.cancel()


def collect(
    server: Callable[[], Server], path: Path, act: Callable[[Server, LogCollector], object]
) -> tuple[Server, str]:
    """Follow a log while something happens, then finish it."""

    async def run() -> tuple[Server, str]:
        played = server()
        collector = LogCollector(cast("Api", played), delays=QUICK)
        collector.follow("pod", "replica", path)
        done = act(played, collector)
        if asyncio.iscoroutine(done):
            await done
        played.is_over.set()
        return played, await collector.finish("pod", "replica", path, LONG_SECONDS)

    return asyncio.run(run())


async def until(path: Path, text: bytes) -> None:
    """Wait until a log ends with this text."""
    async with asyncio.timeout(LONG_SECONDS):
        while not (path.exists() and path.read_bytes().endswith(text)):
            await asyncio.sleep(0.005)


def test_a_log_is_collected_as_it_grows_and_complete_at_its_end(tmp_path: Path) -> None:
    path = tmp_path / "worker.0" / "log"

    async def act(server: Server, _: LogCollector) -> None:
        server.write(b"one")
        await until(path, b"one\n")
        server.write(b"two")
        await until(path, b"two\n")
        server.write(b"three")

    _, why = collect(Server, path, act)
    assert (path.read_bytes(), why) == (b"one\ntwo\nthree\n", "")


@pytest.mark.parametrize("cut", [0, 10, 31, 35, 60, 120])
def test_a_connection_that_is_cut_continues_where_it_was(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "log"

    async def act(server: Server, _: LogCollector) -> None:
        server.failures = [
            UnreachableError("starting"),
            cut,
            UnreachableError("restarting", 0.01),
            cut,
            UnreachableError("busy"),
        ]
        for number in range(5):
            server.write(b"line %d, which is long enough for a few fragments" % number)

    server, why = collect(Server, path, act)
    assert (path.read_bytes(), why) == (server.kubelet.written, "")


def test_a_collector_that_is_restarted_continues_where_its_predecessor_was(tmp_path: Path) -> None:
    path = tmp_path / "log"
    kept: list[Server] = []

    def first() -> Server:
        kept.append(Server())
        kept[0].write(b"one")
        return kept[0]

    async def killed() -> None:
        collector = LogCollector(cast("Api", first()), delays=QUICK)
        collector.follow("pod", "replica", path)
        await until(path, b"one\n")

    asyncio.run(killed())

    def second() -> Server:
        server = Server()
        server.kubelet = kept[0].kubelet
        server.write(b"two")
        return server

    server, why = collect(second, path, lambda *_: None)
    assert (path.read_bytes(), why) == (b"one\ntwo\n", "")
    assert server.asked[0][0] == "2026-11-15T20:48:20Z"


def test_a_log_that_does_not_exist_yet_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "log"

    async def act(server: Server, _: LogCollector) -> None:
        server.failures = [RefusedError("waiting to start", status=400)] * 2
        server.write(b"one")
        await until(path, b"one\n")

    assert collect(Server, path, act)[1] == ""


def test_a_log_that_no_longer_exists_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "log"

    async def act(server: Server, _: LogCollector) -> None:
        server.failures = [UnreachableError("restarting"), RefusedError("no such pod", status=404)]

    server, why = collect(Server, path, act)
    assert why == "no such pod"
    assert not path.exists()
    assert len(server.asked) == 2


def test_a_pod_is_not_given_up_while_it_may_still_write(tmp_path: Path) -> None:
    path = tmp_path / "log"

    async def act(server: Server, _: LogCollector) -> None:
        server.failures = [RefusedError("no such pod", status=404), RefusedError("may not", status=403)]
        server.write(b"one")
        await until(path, b"one\n")

    assert collect(Server, path, act)[1] == ""


def test_a_log_that_was_followed_to_its_end_is_complete_even_if_the_pod_no_longer_exists_then(
    tmp_path: Path,
) -> None:
    path = tmp_path / "log"

    async def run(*failures: Exception | int) -> str:
        server = Server()
        collector = LogCollector(cast("Api", server), delays=QUICK)
        server.write(b"one")
        server.failures = [*failures]
        collector.follow("pod", "replica", path)
        await until(path, b"one\n")
        server.failures = [RefusedError("no such pod", status=404)] * 1000
        server.is_over.set()
        return await collector.finish("pod", "replica", path, LONG_SECONDS)

    assert asyncio.run(run()) == ""
    path.unlink()
    (path.parent / CURSOR).unlink()
    assert asyncio.run(run(35, *[UnreachableError("restarting")] * 1000)) == "no such pod"


@pytest.mark.parametrize("end", [b"", b'rpc error: code = NotFound desc = when try to find container "a1": not found'])
def test_a_log_that_was_followed_to_its_end_is_complete_though_the_pod_is_deleted_meanwhile(
    tmp_path: Path, end: bytes
) -> None:
    path = tmp_path / "log"

    class DeletedPodServer(Server):
        refused = asyncio.Event()

        async def _chunks(self, since: str, *, follow: bool, cut: int | None) -> AsyncIterator[bytes]:
            if self.is_over.is_set():
                yield b"unable to retrieve container logs"
                self.failures = [RefusedError("no such pod", status=404)] * 1000
                self.refused.set()
                return
            async for chunk in super()._chunks(since, follow=follow, cut=cut):
                yield chunk
            yield end

    async def run() -> str:
        server = DeletedPodServer()
        server.write(b"one")
        collector = LogCollector(cast("Api", server), delays=QUICK)
        collector.follow("pod", "replica", path)
        await until(path, b"one\n")
        server.is_over.set()
        await server.refused.wait()
        return await collector.finish("pod", "replica", path, LONG_SECONDS)

    assert asyncio.run(run()) == ""


def test_the_end_of_a_log_is_requested_again_from_a_kubelet_that_has_just_started(tmp_path: Path) -> None:
    async def run() -> tuple[str, str]:
        server = Server()
        server.write(b"one")
        not_now = RefusedError("is not available", status=400)
        server.failures = [not_now, not_now]
        collector = LogCollector(cast("Api", server), delays=QUICK)
        whole = await collector.finish("pod", "replica", tmp_path / "log", LONG_SECONDS)
        server.failures = [not_now] * 1000
        return whole, await collector.finish("pod", "replica", tmp_path / "other", LONG_SECONDS)

    assert asyncio.run(run()) == ("", "is not available")
    assert (tmp_path / "log").read_bytes() == b"one\n"


def test_a_log_is_requested_again_after_an_error_of_the_kubelet(tmp_path: Path) -> None:
    def act(server: Server, _: LogCollector) -> None:
        server.write(b"one")
        server.error_reads = 2

    path = tmp_path / "log"
    _, why = collect(Server, path, act)
    assert (path.read_bytes(), why) == (b"one\n", "")

    def fail(server: Server, _: LogCollector) -> None:
        server.error_reads = 1000

    assert collect(Server, tmp_path / "other", fail)[1] == "unable to retrieve container logs"


def test_a_server_that_does_not_answer_is_waited_for_a_limited_time(tmp_path: Path) -> None:
    async def run() -> str:
        server = Server()
        server.failures = [UnreachableError("away")] * 1000
        return await LogCollector(cast("Api", server), delays=QUICK).finish("pod", "replica", tmp_path / "log", 0.3)

    assert asyncio.run(run()) == "away"


def test_more_logs_than_may_be_followed_are_all_complete(tmp_path: Path) -> None:
    async def run() -> int:
        server = Server()
        server.write(b"one")
        collector = LogCollector(cast("Api", server), most_followed=3, delays=QUICK)
        paths = [tmp_path / str(number) / "log" for number in range(20)]
        for path in paths:
            collector.follow("pod", "replica", path)
        for path in paths:
            await until(path, b"one\n")
        server.write(b"two")
        server.is_over.set()
        ends = (collector.finish("pod", "replica", path, LONG_SECONDS) for path in paths)
        assert not any(await asyncio.gather(*ends))
        assert {path.read_bytes() for path in paths} == {b"one\ntwo\n"}
        return server.most_followed

    assert asyncio.run(run()) == 3


def test_a_container_without_output_has_a_complete_log_and_no_file(tmp_path: Path) -> None:
    assert collect(Server, tmp_path / "log", lambda *_: None)[1] == ""
    assert not (tmp_path / "log").exists()


def test_a_last_line_that_is_written_just_after_the_end_is_collected(tmp_path: Path) -> None:
    path = tmp_path / "log"

    class Late(Server):
        async def _chunks(self, since: str, *, follow: bool, cut: int | None) -> AsyncIterator[bytes]:
            async for chunk in super()._chunks(since, follow=follow, cut=cut):
                yield chunk
            if len(self.asked) == 1:
                self.write(b"saved")

    async def run(first: bytes) -> str:
        server = Late()
        if first:
            server.write(first)
        server.is_over.set()
        return await LogCollector(cast("Api", server), delays=QUICK).finish("pod", "replica", path, LONG_SECONDS)

    assert asyncio.run(run(b"")) == ""
    assert path.read_bytes() == b"saved\n"
    path.unlink()
    (path.parent / CURSOR).unlink()
    assert asyncio.run(run(b"one")) == ""
    assert path.read_bytes() == b"one\nsaved\n"


class VirtualClockLoop(asyncio.SelectorEventLoop):
    """An event loop with its own clock, which advances only when all tasks wait, and then at once."""

    def __init__(self) -> None:
        self._now = 0.0
        selector = selectors.DefaultSelector()
        super().__init__(selector)
        wait = selector.select

        def select(timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            found = wait(timeout if timeout is None else 0)
            self._now += 0 if found else timeout or 0
            return found

        selector.select = select  # type: ignore[method-assign]

    def time(self) -> float:
        return self._now


AN_HOUR = 3600.0  # seconds of the loop's clock after which nothing else happens by itself


def test_a_long_remainder_is_waited_for_as_long_as_data_arrives(tmp_path: Path) -> None:
    path, timeout_seconds = tmp_path / "log", 10.0

    class Slow(Server):
        async def _chunks(self, since: str, *, follow: bool, cut: int | None) -> AsyncIterator[bytes]:
            async for chunk in super()._chunks(since, follow=follow, cut=cut):
                for line in chunk.splitlines(keepends=True):
                    yield line
                    await asyncio.sleep(timeout_seconds / 4)

    async def run() -> str:
        server = Slow()
        for number in range(12):
            server.write(b"line %d" % number)
        server.is_over.set()
        return await LogCollector(cast("Api", server), delays=QUICK).finish("pod", "replica", path, timeout_seconds)

    with asyncio.Runner(loop_factory=VirtualClockLoop) as runner:
        assert runner.run(run()) == ""
    assert path.read_bytes() == b"".join(b"line %d\n" % number for number in range(12))


def test_the_remainder_is_requested_if_a_server_ends_a_log_early(tmp_path: Path) -> None:
    path = tmp_path / "worker.0" / "log"

    async def run() -> tuple[Server, str]:
        server = Server()
        for number in range(20):
            server.write(b"line %d" % number)
        server.is_over.set()
        server.silent_cuts = [100, 330]
        return server, await LogCollector(cast("Api", server), delays=QUICK).finish(
            "pod", "replica", path, LONG_SECONDS
        )

    server, missing = asyncio.run(run())
    assert missing == ""
    assert path.read_bytes() == b"".join(b"line %d\n" % number for number in range(20))
    assert not server.silent_cuts


@pytest.mark.parametrize("backlog_bytes", [500, 5000])
def test_a_new_file_that_is_started_while_a_long_one_is_read_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backlog_bytes: int
) -> None:
    monkeypatch.setattr(logs, "_BACKLOG_BYTES", 1000)
    path = tmp_path / "log"

    class OldFileServer(Server):
        """A kubelet that continues to send the old file after it has started a new one."""

        async def _chunks(self, since: str, *, follow: bool, cut: int | None) -> AsyncIterator[bytes]:
            if len(self.asked) > 1:
                async for chunk in super()._chunks(since, follow=follow, cut=cut):
                    yield chunk
                return
            yield self.kubelet.send(since)
            self.kubelet.rotate()
            self.kubelet.write(BEGAN_NS + 10**12, b"new")
            await self.is_over.wait()

    async def run() -> tuple[bool, str]:
        server = OldFileServer()
        for _ in range(backlog_bytes // 40):
            server.write(b"old 456789")  # after a time of thirty bytes
        collector = LogCollector(cast("Api", server), delays=QUICK)
        collector.follow("pod", "replica", path)
        await asyncio.sleep(AN_HOUR)
        is_found = path.read_bytes().endswith(b"new\n")
        server.is_over.set()
        return is_found, await collector.finish("pod", "replica", path, LONG_SECONDS)

    with asyncio.Runner(loop_factory=VirtualClockLoop) as runner:
        assert runner.run(run()) == (backlog_bytes > 1000, "")
    assert path.read_bytes() == b"old 456789\n" * (backlog_bytes // 40) + b"new\n"


def test_many_lines_of_one_second_are_not_read_repeatedly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_BACKLOG_BYTES", 1000)

    async def run() -> list[tuple[str, bool]]:
        server = Server()
        for number in range(100):
            server.kubelet.write(BEGAN_NS + number, b"burst")  # all in one second, the resolution of a request
        collector = LogCollector(cast("Api", server), delays=QUICK)
        collector.follow("pod", "replica", tmp_path / "log")
        await asyncio.sleep(AN_HOUR)
        followed = [*server.asked]
        server.is_over.set()
        assert not await collector.finish("pod", "replica", tmp_path / "log", LONG_SECONDS)
        return followed

    with asyncio.Runner(loop_factory=VirtualClockLoop) as runner:
        assert [follow for _, follow in runner.run(run())] == [True, True]
    assert (tmp_path / "log").read_bytes() == b"burst\n" * 100
