"""The collector of logs, against an API server that plays: breaks, refusals, and more pods than may be followed."""

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
    """Serves one container's log; what goes wrong at each request is said before."""

    def __init__(self) -> None:
        self.kubelet = Kubelet()
        self.troubles: list[Exception | int] = []  # raised; or the bytes after which the line is cut, if a number
        self.complaints = 0  # so many whole reads begin with one, and bring nothing else
        self.silent_cuts: list[int] = []  # after so many bytes a read is at its end, as if that were all
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
        trouble = self.troubles.pop(0) if self.troubles else None
        if isinstance(trouble, Exception):
            raise trouble
        self.followed += follow
        self.most_followed = max(self.most_followed, self.followed)
        try:
            yield self._chunks(since, follow=follow, cut=trouble)
        finally:
            self.followed -= follow

    async def _chunks(self, since: str, *, follow: bool, cut: int | None) -> AsyncIterator[bytes]:
        sent = 0
        if not follow and self.complaints:
            self.complaints -= 1
            yield b"unable to retrieve container logs"
            return
        while True:
            data = self.kubelet.send(since)
            if not follow and self.silent_cuts:
                yield data[: self.silent_cuts.pop(0)]
                return
            if cut is not None and len(data) >= cut:
                yield data[sent:cut]
                raise UnreachableError("the line was cut")
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
    """Wait until a log ends so."""
    async with asyncio.timeout(LONG_SECONDS):
        while not (path.exists() and path.read_bytes().endswith(text)):
            await asyncio.sleep(0.005)


def test_a_log_is_here_as_it_grows_and_whole_at_its_end(tmp_path: Path) -> None:
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
def test_a_line_that_is_cut_goes_on_where_it_was(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "log"

    async def act(server: Server, _: LogCollector) -> None:
        server.troubles = [
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


def test_who_returns_goes_on_where_another_was(tmp_path: Path) -> None:
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


def test_a_log_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "log"

    async def act(server: Server, _: LogCollector) -> None:
        server.troubles = [RefusedError("waiting to start", status=400)] * 2
        server.write(b"one")
        await until(path, b"one\n")

    assert collect(Server, path, act)[1] == ""


def test_a_log_that_is_gone_is_waited_for_no_longer(tmp_path: Path) -> None:
    path = tmp_path / "log"

    async def act(server: Server, _: LogCollector) -> None:
        server.troubles = [UnreachableError("restarting"), RefusedError("no such pod", status=404)]

    server, why = collect(Server, path, act)
    assert why == "no such pod"
    assert not path.exists()
    assert len(server.asked) == 2


def test_nobody_is_given_up_while_it_may_still_say_something(tmp_path: Path) -> None:
    path = tmp_path / "log"

    async def act(server: Server, _: LogCollector) -> None:
        server.troubles = [RefusedError("no such pod", status=404), RefusedError("may not", status=403)]
        server.write(b"one")
        await until(path, b"one\n")

    assert collect(Server, path, act)[1] == ""


def test_who_was_followed_to_the_end_is_whole_though_it_is_gone_when_it_is_looked_at_again(tmp_path: Path) -> None:
    path = tmp_path / "log"

    async def run(*troubles: Exception | int) -> str:
        server = Server()
        collector = LogCollector(cast("Api", server), delays=QUICK)
        server.write(b"one")
        server.troubles = [*troubles]
        collector.follow("pod", "replica", path)
        await until(path, b"one\n")
        server.troubles = [RefusedError("no such pod", status=404)] * 1000
        server.is_over.set()
        return await collector.finish("pod", "replica", path, LONG_SECONDS)

    assert asyncio.run(run()) == ""
    path.unlink()
    (path.parent / CURSOR).unlink()
    assert asyncio.run(run(35, *[UnreachableError("restarting")] * 1000)) == "no such pod"


@pytest.mark.parametrize("end", [b"", b'rpc error: code = NotFound desc = when try to find container "a1": not found'])
def test_who_was_followed_to_the_end_is_whole_though_it_is_taken_away_meanwhile(tmp_path: Path, end: bytes) -> None:
    path = tmp_path / "log"

    class TakenAway(Server):
        complained = asyncio.Event()

        async def _chunks(self, since: str, *, follow: bool, cut: int | None) -> AsyncIterator[bytes]:
            if self.is_over.is_set():
                yield b"unable to retrieve container logs"
                self.troubles = [RefusedError("no such pod", status=404)] * 1000
                self.complained.set()
                return
            async for chunk in super()._chunks(since, follow=follow, cut=cut):
                yield chunk
            yield end

    async def run() -> str:
        server = TakenAway()
        server.write(b"one")
        collector = LogCollector(cast("Api", server), delays=QUICK)
        collector.follow("pod", "replica", path)
        await until(path, b"one\n")
        server.is_over.set()
        await server.complained.wait()
        return await collector.finish("pod", "replica", path, LONG_SECONDS)

    assert asyncio.run(run()) == ""


def test_a_kubelet_that_has_just_begun_is_asked_again_for_the_end(tmp_path: Path) -> None:
    async def run() -> tuple[str, str]:
        server = Server()
        server.write(b"one")
        not_now = RefusedError("is not available", status=400)
        server.troubles = [not_now, not_now]
        collector = LogCollector(cast("Api", server), delays=QUICK)
        whole = await collector.finish("pod", "replica", tmp_path / "log", LONG_SECONDS)
        server.troubles = [not_now] * 1000
        return whole, await collector.finish("pod", "replica", tmp_path / "other", LONG_SECONDS)

    assert asyncio.run(run()) == ("", "is not available")
    assert (tmp_path / "log").read_bytes() == b"one\n"


def test_a_kubelet_that_complains_is_asked_again_before_it_is_believed(tmp_path: Path) -> None:
    def act(server: Server, _: LogCollector) -> None:
        server.write(b"one")
        server.complaints = 2

    path = tmp_path / "log"
    _, why = collect(Server, path, act)
    assert (path.read_bytes(), why) == (b"one\n", "")

    def complain(server: Server, _: LogCollector) -> None:
        server.complaints = 1000

    assert collect(Server, tmp_path / "other", complain)[1] == "unable to retrieve container logs"


def test_whoever_does_not_answer_is_waited_for_only_so_long(tmp_path: Path) -> None:
    async def run() -> str:
        server = Server()
        server.troubles = [UnreachableError("away")] * 1000
        return await LogCollector(cast("Api", server), delays=QUICK).finish("pod", "replica", tmp_path / "log", 0.3)

    assert asyncio.run(run()) == "away"


def test_more_logs_than_may_be_followed_are_all_whole(tmp_path: Path) -> None:
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


def test_a_container_that_says_nothing_has_a_whole_log_that_is_no_file(tmp_path: Path) -> None:
    assert collect(Server, tmp_path / "log", lambda *_: None)[1] == ""
    assert not (tmp_path / "log").exists()


def test_a_last_line_that_is_written_a_moment_after_the_end_is_there(tmp_path: Path) -> None:
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


class LeapingLoop(asyncio.SelectorEventLoop):
    """A loop of its own time, which passes only when everybody waits, and then at once: no machine is too slow."""

    def __init__(self) -> None:
        self._now = 0.0
        selector = selectors.DefaultSelector()
        super().__init__(selector)
        look = selector.select

        def leap(timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            found = look(timeout if timeout is None else 0)
            self._now += 0 if found else timeout or 0
            return found

        selector.select = leap  # type: ignore[method-assign]

    def time(self) -> float:
        return self._now


AN_HOUR = 3600.0  # of such a loop, in which everything has happened that happens by itself


def test_a_long_rest_is_waited_for_as_long_as_it_comes(tmp_path: Path) -> None:
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

    with asyncio.Runner(loop_factory=LeapingLoop) as runner:
        assert runner.run(run()) == ""
    assert path.read_bytes() == b"".join(b"line %d\n" % number for number in range(12))


def test_a_server_that_ends_in_the_middle_without_a_word_is_asked_for_the_rest(tmp_path: Path) -> None:
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
def test_a_new_file_that_is_begun_while_a_long_one_is_read_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backlog_bytes: int
) -> None:
    monkeypatch.setattr(logs, "_BACKLOG_BYTES", 1000)
    path = tmp_path / "log"

    class Forgetful(Server):
        """Goes on with the old file, as a kubelet does that has not come to its end yet when it begins a new one."""

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
        server = Forgetful()
        for _ in range(backlog_bytes // 40):
            server.write(b"old 456789")  # behind a time of thirty bytes
        collector = LogCollector(cast("Api", server), delays=QUICK)
        collector.follow("pod", "replica", path)
        await asyncio.sleep(AN_HOUR)
        is_found = path.read_bytes().endswith(b"new\n")
        server.is_over.set()
        return is_found, await collector.finish("pod", "replica", path, LONG_SECONDS)

    with asyncio.Runner(loop_factory=LeapingLoop) as runner:
        assert runner.run(run()) == (backlog_bytes > 1000, "")
    assert path.read_bytes() == b"old 456789\n" * (backlog_bytes // 40) + b"new\n"


def test_much_that_was_written_at_once_is_not_read_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_BACKLOG_BYTES", 1000)

    async def run() -> list[tuple[str, bool]]:
        server = Server()
        for number in range(100):
            server.kubelet.write(BEGAN_NS + number, b"burst")  # all in one second, which is what can be asked for
        collector = LogCollector(cast("Api", server), delays=QUICK)
        collector.follow("pod", "replica", tmp_path / "log")
        await asyncio.sleep(AN_HOUR)
        followed = [*server.asked]
        server.is_over.set()
        assert not await collector.finish("pod", "replica", tmp_path / "log", LONG_SECONDS)
        return followed

    with asyncio.Runner(loop_factory=LeapingLoop) as runner:
        assert [follow for _, follow in runner.run(run())] == [True, True]
    assert (tmp_path / "log").read_bytes() == b"burst\n" * 100
