"""A fake API server on a real socket, with answers that a test defines."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from scaffold.waiting import PATIENCE_SECONDS

Object = dict[str, Any]


class Request(NamedTuple):
    """A request of a client."""

    method: str
    path: str
    params: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


class Answer(NamedTuple):
    """An answer: an object, or lines that are sent one by one; with `is_cut` the connection is cut at the end."""

    status: int = 200
    body: Object | None = None
    lines: tuple[Object, ...] | None = None
    headers: tuple[str, ...] = ()
    is_cut: bool = False


Respond = Callable[[Request], Answer]


@asynccontextmanager
async def serve(respond: Respond, port: int = 0) -> AsyncIterator[int]:
    """Serve on loopback; yield the port."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while request := await _read(reader):
                answer = respond(request)
                await _write(writer, answer)
                if answer.is_cut or answer.lines is not None:
                    return
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", port)
    async with server:
        yield int(server.sockets[0].getsockname()[1])
        server.close()


def write_kubeconfig(path: Path, port: int, *, user: Object | None = None, namespace: str = "team") -> Path:
    """Write a kubeconfig with one context, `here`, as JSON, which is YAML; return its path."""
    path.write_text(
        json.dumps(
            {
                "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
                "users": [{"name": "u", "user": user or {"token": "letmein"}}],
                "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": namespace}}],
                "current-context": "here",
            }
        )
    )
    return path


def status(code: int, reason: str, message: str, **details: str) -> Answer:
    """Return a refusal as an API server writes it."""
    body = {"kind": "Status", "code": code, "reason": reason, "message": message, "details": details}
    return Answer(code, body)


def pod(name: str, version: int) -> Object:
    """Return a minimal pod."""
    return {"kind": "Pod", "metadata": {"name": name, "resourceVersion": str(version)}}


def listing(version: int, *pods: Object) -> Answer:
    """Return an answer with a list of these objects."""
    return Answer(body={"items": list(pods), "metadata": {"resourceVersion": str(version)}})


def changes(*events: tuple[str, Object], is_cut: bool = True) -> Answer:
    """Return an answer to a watch with these changes."""
    return Answer(lines=tuple({"type": what, "object": thing} for what, thing in events), is_cut=is_cut)


async def _read(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
    except asyncio.IncompleteReadError:
        return None
    first, *rest = head.strip().split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    url = urlsplit(target)
    return Request(method, url.path, dict(parse_qsl(url.query)), headers, body)


async def _write(writer: asyncio.StreamWriter, answer: Answer) -> None:
    head = [f"HTTP/1.1 {answer.status} X", "Content-Type: application/json", *answer.headers]
    if answer.lines is None:
        body = json.dumps(answer.body or {}).encode()
        writer.write("\r\n".join([*head, f"Content-Length: {len(body)}", "", ""]).encode() + body)
    else:
        writer.write("\r\n".join([*head, "Transfer-Encoding: chunked", "", ""]).encode())
        for each in answer.lines:
            line = json.dumps(each).encode() + b"\n"
            writer.write(b"%x\r\n%s\r\n" % (len(line), line))
        if not answer.is_cut:
            writer.write(b"0\r\n\r\n")
    await writer.drain()


def run(test: Awaitable[None]) -> None:
    """Run the coroutine function of a test."""

    async def limited() -> None:
        await asyncio.wait_for(test, PATIENCE_SECONDS)

    asyncio.run(limited())
