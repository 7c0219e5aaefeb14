"""A client for a cluster closes all connections that it opens."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path

from drumline.engine.kubernetes.connection import open_client
from scaffold.waiting import PATIENCE_SECONDS


def write_kubeconfig(folder: Path, server: str) -> str:
    named = {
        "clusters": [{"name": "c", "cluster": {"server": server, "insecure-skip-tls-verify": True}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "current-context": "c",
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(named))
    return str(path)


def test_a_request_that_is_cancelled_while_tls_begins_leaves_no_connection(tmp_path: Path) -> None:
    async def cancel_during_handshake() -> bool:
        greeted, closed = asyncio.Event(), asyncio.Event()

        async def be_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readexactly(1)
            greeted.set()
            await reader.read()  # to the end, which is there when the client has closed
            closed.set()
            writer.close()

        async with await asyncio.start_server(be_silent, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            client, _ = open_client(None, None, write_kubeconfig(tmp_path, f"https://127.0.0.1:{port}"))
            request = asyncio.create_task(client.get("/version"))
            await greeted.wait()
            request.cancel()
            await asyncio.gather(request, return_exceptions=True)
            with suppress(TimeoutError):
                await asyncio.wait_for(closed.wait(), PATIENCE_SECONDS)
            await client.aclose()
        return closed.is_set()

    assert asyncio.run(cancel_during_handshake())
