"""Answers without an end, or that are no objects: an API server may pass on the answer of a malicious node."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from drumline.engine.kubernetes.api import Api, open_api
from drumline.engine.kubernetes.api_errors import TooLargeError, UnreachableError
from drumline.engine.kubernetes.logs import LogCollector, RetryDelays
from drumline.errors import EngineError
from integration.kubernetes.server import run, write_kubeconfig

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
MIB = 1 << 20
Parts = Callable[[str], AsyncIterator[bytes]]


@asynccontextmanager
async def api_of(folder: Path, monkeypatch: pytest.MonkeyPatch, head: bytes, parts: Parts) -> AsyncIterator[Api]:
    """Serve `head` and whatever `parts` yields for the first line of a request; yield a client."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            asked = (await reader.readuntil(b"\r\n\r\n")).decode().partition("\r\n")[0]
            writer.write(head)
            async for part in parts(asked):
                writer.write(part)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        port = int(server.sockets[0].getsockname()[1])
        monkeypatch.setenv("KUBECONFIG", str(write_kubeconfig(folder / "config", port)))
        async with open_api(timeout_seconds=0) as api:
            yield api
        server.close()


async def endless(_: str) -> AsyncIterator[bytes]:
    yield b'{"items": ["'
    while True:
        yield b"x" * MIB


def peak_bytes() -> int:
    return tracemalloc.get_traced_memory()[1]


@pytest.mark.parametrize("length", [b"Content-Length: 1000000000000\r\n\r\n", b"Connection: close\r\n\r\n"])
def test_an_answer_without_an_end_is_refused_and_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: bytes
) -> None:
    async def test() -> None:
        async with api_of(tmp_path, monkeypatch, HEAD + length, endless) as api:
            tracemalloc.start()
            try:
                with pytest.raises(TooLargeError, match="more than 8 MiB"):
                    await api.raw_get("/api/v1/nodes/n/proxy/stats/summary")
                assert peak_bytes() < 40 * MIB
            finally:
                tracemalloc.stop()

    run(test())


def test_a_refusal_without_an_end_is_a_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        head = b"HTTP/1.1 403 No\r\nConnection: close\r\n\r\n"
        async with api_of(tmp_path, monkeypatch, head, endless) as api:
            with pytest.raises(EngineError, match="HTTP 403"):
                await api.raw_get("/x")

    run(test())


@pytest.mark.parametrize(
    "body",
    [b"", b"no JSON", b"[]", b"null", b"[" * 100_000, b'{"a": ' + b"9" * 5000 + b"}", b'"\\ud800"'],
    ids=["empty", "text", "list", "null", "deep", "huge number", "surrogate"],
)
def test_an_answer_that_is_no_object_is_an_engine_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    async def said(_: str) -> AsyncIterator[bytes]:
        yield body

    async def test() -> None:
        async with api_of(tmp_path, monkeypatch, HEAD + b"Connection: close\r\n\r\n", said) as api:
            with pytest.raises(EngineError, match="did not answer with an object"):
                await api.raw_get("/x")

    run(test())


@pytest.mark.parametrize(
    "body",
    [b'{"details": "x"}', b'{"details": {"causes": ["x", null, 3]}}', b'{"message": {"a": 1}}', b"[1]"],
)
def test_a_refusal_with_any_body_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: bytes) -> None:
    async def said(_: str) -> AsyncIterator[bytes]:
        yield body

    async def test() -> None:
        head = b"HTTP/1.1 404 No\r\nRetry-After: nan\r\nConnection: close\r\n\r\n"
        async with api_of(tmp_path, monkeypatch, head, said) as api:
            with pytest.raises(EngineError):
                await api.raw_get("/x")

    run(test())


@pytest.mark.parametrize("after", ["nan", "inf", "-1", "1e9", "9" * 400])
def test_an_invalid_retry_after_header_means_an_unreachable_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    async def said(_: str) -> AsyncIterator[bytes]:
        yield b"{}"

    async def test() -> None:
        head = f"HTTP/1.1 429 Busy\r\nRetry-After: {after}\r\nConnection: close\r\n\r\n".encode()
        async with api_of(tmp_path, monkeypatch, head, said) as api:
            with pytest.raises(UnreachableError):
                await api.raw_get("/x")

    run(test())


def watched(line: bytes) -> Parts:
    """Answer a list with no objects, and a watch with this line and then with a pod."""
    seen = 0

    async def said(asked: str) -> AsyncIterator[bytes]:
        nonlocal seen
        if "watch=true" not in asked:
            yield b'{"metadata": {"resourceVersion": "1"}, "items": []}'
            return
        seen += 1
        yield line if seen == 1 else b'{"type": "ADDED", "object": {"metadata": {"resourceVersion": "7"}}}\n'

    return said


@pytest.mark.parametrize(
    "line",
    [
        b"\n\n[]\n",
        b'{"type": "ADDED"}\n',
        b'{"type": 3, "object": {}}\n',
        b'{"type": "ADDED", "object": null}\n',
        b'{"type": "ADDED", "object": {"metadata": null}}\n',
        b'{"type": "ERROR", "object": "x"}\n',
        b'{"type": "ERROR", "object": {"code": "x"}}\n',
        b"[" * 100_000 + b"\n",
        b"x" * (9 * MIB),
    ],
    ids=["list", "no object", "no type", "null", "no metadata", "error", "no code", "deep", "no end"],
)
def test_a_watch_continues_after_an_invalid_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: bytes) -> None:
    async def test() -> None:
        async with api_of(tmp_path, monkeypatch, HEAD + b"Connection: close\r\n\r\n", watched(line)) as api:
            found = api.watch("Pod")
            assert (await anext(found)).what == "LISTED"
            assert (await anext(found)).what == "ADDED"

    run(test())


def test_a_list_with_too_large_pages_is_read_in_smaller_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[str] = []

    async def said(asked: str) -> AsyncIterator[bytes]:
        limit = asked.partition("limit=")[2].partition(" ")[0].partition("&")[0]
        limits.append(limit)
        yield b'{"metadata": {"resourceVersion": "1"}, "items": ['
        if int(limit) > 5:
            for _ in range(33):
                yield b'"' + b"x" * MIB + b'",'
        yield b'{"metadata": {"name": "a"}}]}'

    async def test() -> None:
        async with api_of(tmp_path, monkeypatch, HEAD + b"Connection: close\r\n\r\n", said) as api:
            assert [each["metadata"]["name"] for each in await api.list("Pod")] == ["a"]

    run(test())
    assert limits == ["500", "50", "5"]


def test_reading_a_log_that_never_ends_stops_after_the_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def trickle(_: str) -> AsyncIterator[bytes]:
        yield b"2026-11-15T20:48:20.000000000Z "
        while True:
            yield b"x"
            await asyncio.sleep(0.01)

    async def test() -> None:
        head = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
        async with api_of(tmp_path, monkeypatch, head, trickle) as api:
            collector = LogCollector(api, delays=RetryDelays(0.001, 0.01, 0.01))
            why = await collector.finish("pod", "replica", tmp_path / "a" / "b" / "log", 5.0, longest_seconds=0.5)
            assert why == "it was not complete after 0.5 s"

    run(test())


def test_list_everywhere_returns_only_the_accepted_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def said(_: str) -> AsyncIterator[bytes]:
        yield b'{"metadata": {"resourceVersion": "1"}, "items": [{"metadata": {"name": "a"}}, {"metadata": {}}]}'

    async def accept(each: dict[str, dict[str, str]]) -> dict[str, dict[str, str]] | None:
        return each if each["metadata"].get("name") else None

    async def test() -> None:
        async with api_of(tmp_path, monkeypatch, HEAD + b"Connection: close\r\n\r\n", said) as api:
            assert len(await api.list_everywhere("Pod", accept)) == 1

    run(test())
