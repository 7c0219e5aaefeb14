"""A web server on this machine that supports ranges, and can cut, delay or change its answers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Loopback:
    """A server of one file, which records the requests."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.version = '"1"'
        self.url = ""
        self.ranges: list[str] = []  # the requested ranges; empty for a request without a range
        self.cut: int | None = None  # the next answer is cut after so many bytes
        self.hold: int | None = None  # the next answer pauses after so many bytes
        self.held = threading.Event()
        self.over = threading.Event()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    site: Loopback

    def do_GET(self) -> None:
        """Send the file, or the requested range if the file is unchanged."""
        site, wanted = self.site, self.headers.get("Range", "")
        site.ranges.append(wanted)
        if not site.url.endswith(self.path):
            self.send_error(404)
            return
        start = int(wanted.removeprefix("bytes=").removesuffix("-") or 0)
        if self.headers.get("If-Range", site.version) != site.version:
            start, wanted = 0, ""
        if wanted and start >= len(site.content):
            self.send_error(416)
            return
        self.send_response(206 if wanted else 200)
        if wanted:
            self.send_header("Content-Range", f"bytes {start}-{len(site.content) - 1}/{len(site.content)}")
        self.send_header("ETag", site.version)
        self.send_header("Content-Length", str(len(site.content) - start))
        self.end_headers()
        self._send(site.content[start:])

    def _send(self, content: bytes) -> None:
        site = self.site
        cut, hold, site.cut, site.hold = site.cut, site.hold, None, None
        self.wfile.write(content[: hold if cut is None else cut])
        if hold is not None:
            self.wfile.flush()
            site.held.set()
            site.over.wait()
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Print nothing."""


@contextmanager
def serving(content: bytes, name: str) -> Iterator[Loopback]:
    """Serve a file under this name until the end of the block."""
    site = Loopback(content)
    handler = type("Handler", (_Handler,), {"site": site})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        site.url = f"http://127.0.0.1:{server.server_port}/{name}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield site
        finally:
            site.over.set()
            server.shutdown()
            thread.join()
