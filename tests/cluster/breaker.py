"""An HTTP proxy on loopback before a cluster's API server, which injects faults into requests.

It forwards to `kubectl proxy`, which has the address and credentials of the cluster. Each request has a connection of
its own, which can be cut.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import subprocess
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

_READ = 65536
_FILTERED = "^$"  # no path; by default kubectl rejects some


class Request(NamedTuple):
    """A request of a client."""

    method: str
    path: str  # with its query

    @property
    def is_watch(self) -> bool:
        return "watch=true" in self.path

    @property
    def is_log(self) -> bool:
        return "/log?" in self.path


class Fault(NamedTuple):
    """A fault of requests of a kind, so many times."""

    concerns: Callable[[Request], bool]
    times: int
    status: int = 0  # the answer, instead of the server's
    headers: tuple[str, ...] = ()
    delay_seconds: float = 0.0
    cut_bytes: int | None = None  # of the answer, before the connection is cut
    gone: bool = False  # answer a watch with 410 in its stream


class Breaker:
    """A thread that forwards requests, with the faults that a test adds."""

    def __init__(self) -> None:
        command = ["kubectl", "proxy", "--port=0", f"--reject-paths={_FILTERED}"]
        self._kubectl = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._kubectl.stdout
        told = self._kubectl.stdout.readline()
        found = re.search(r"127\.0\.0\.1:(\d+)", told)
        assert found, told
        self._upstream_port = int(found[1])
        self.port = 0
        self.seen: list[Request] = []
        self.faults: list[Fault] = []
        self._connections: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self._reserved: socket.socket | None = None  # holds the port while the proxy does not serve
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.serve_again()

    def kubeconfig(self, path: Path, namespace: str) -> Path:
        """Write a kubeconfig that reaches the cluster through this proxy."""
        server = {"name": "bad", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}
        context = {"name": "bad", "context": {"cluster": "bad", "user": "bad", "namespace": namespace}}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "bad",
            "clusters": [server],
            "contexts": [context],
            "users": [{"name": "bad", "user": {}}],
        }
        path.write_text(json.dumps(config))
        return path

    def fail(self, concerns: Callable[[Request], bool] = lambda _: True, times: int = 1, **fault: Any) -> None:
        """Inject this fault into the next requests of a kind."""
        self.faults.append(Fault(concerns, times, **fault))

    def cut(self) -> None:
        """Cut every open connection."""
        self._run(self._cut())

    def stop_serving(self) -> None:
        """Refuse connections, and cut the open ones, as during a restart of an API server."""
        self._run(self._go_away())

    def serve_again(self) -> None:
        """Accept connections again, at the same port."""
        self._run(self._listen())

    def close(self) -> None:
        """Stop the proxy and `kubectl proxy`."""
        self.stop_serving()
        self._run(self._end_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        if self._reserved is not None:
            self._reserved.close()
        self._kubectl.terminate()
        self._kubectl.communicate()

    def _run(self, job: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(job, self._loop).result(30)

    async def _listen(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, limit=1 << 20)
            self.port = self._server.sockets[0].getsockname()[1]
            if self._reserved is not None:
                self._reserved.close()

    async def _end_all(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _cut(self) -> None:
        for connection in [*self._connections]:
            connection.transport.abort()

    async def _go_away(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
            self._reserved = _reserve(self.port)
        await self._cut()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            await self._exchange(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._connections.discard(writer)
            with suppress(OSError):
                writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *fields = head.decode("latin-1").rstrip().split("\r\n")
        method, path, _ = first.split(" ", 2)
        request = Request(method, path)
        self.seen.append(request)
        sizes = [int(field.split(":", 1)[1]) for field in fields if field.lower().startswith("content-length:")]
        body = await reader.readexactly(sizes[0]) if sizes else b""
        fault = self._next(request)
        if fault:
            await asyncio.sleep(fault.delay_seconds)
        if fault and (fault.status or fault.gone):
            await _answer(writer, fault)
            return
        kept = [field for field in fields if not field.lower().startswith(("connection:", "host:", "accept-encoding:"))]
        ours = (first, f"Host: 127.0.0.1:{self._upstream_port}", "Connection: close", *kept)
        upstream, up = await asyncio.open_connection("127.0.0.1", self._upstream_port)
        self._connections.add(up)
        try:
            up.write("\r\n".join(ours).encode("latin-1") + b"\r\n\r\n" + body)
            await _pass_on(upstream, writer, fault.cut_bytes if fault else None)
        finally:
            self._connections.discard(up)
            up.close()

    def _next(self, request: Request) -> Fault | None:
        for place, fault in enumerate(self.faults):
            if fault.concerns(request):
                self.faults[place : place + 1] = [fault._replace(times=fault.times - 1)] if fault.times > 1 else []
                return fault
        return None


def _reserve(port: int) -> socket.socket:
    """Bind a port without listening: connections are refused, and no other process can take it."""
    place = socket.socket()
    place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    place.bind(("127.0.0.1", port))
    return place


async def _answer(writer: asyncio.StreamWriter, fault: Fault) -> None:
    status = fault.status or 410
    said = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status, "message": "injected fault"}
    body: Any = {"type": "ERROR", "object": {**said, "reason": "Expired"}} if fault.gone else said
    data = json.dumps(body).encode() + b"\n"
    line = "HTTP/1.1 200 OK" if fault.gone else f"HTTP/1.1 {status} Injected Fault"
    head = (line, "Content-Type: application/json", f"Content-Length: {len(data)}", "Connection: close", *fault.headers)
    writer.write("\r\n".join(head).encode() + b"\r\n\r\n" + data)
    await writer.drain()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, cut_bytes: int | None) -> None:
    """Forward an answer as it arrives, up to `cut_bytes`."""
    passed = 0
    while data := await reader.read(_READ):
        if cut_bytes is not None and passed + len(data) > cut_bytes:
            writer.write(data[: cut_bytes - passed])
            await writer.drain()
            writer.transport.abort()
            return
        writer.write(data)
        await writer.drain()
        passed += len(data)
