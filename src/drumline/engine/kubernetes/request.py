"""Requests to a cluster's API server, retried while there is no answer.

Answers are read up to a limit, since a node or another user may have written them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from drumline.engine.kubernetes.answer_fields import text
from drumline.engine.kubernetes.api_errors import ApiLocation, TooLargeError, UnreachableError, is_from_node, refusal
from drumline.engine.kubernetes.backoff import Backoff
from drumline.engine.kubernetes.connection import (
    CREDENTIALS_ERRORS,
    REQUEST_ERROR,
    STREAM_TIMEOUT,
    credentials_error,
    unreachable,
)
from drumline.engine.kubernetes.paths import Object
from drumline.errors import EngineError

if TYPE_CHECKING:
    from httpx2 import AsyncClient, Response

LARGEST_ANSWER_BYTES = 32 << 20
_LARGEST_REFUSAL_BYTES = 1 << 20
_MOST_AT_ONCE = 32
_ANSWER_SECONDS = 120.0  # for a whole answer


class Requests:
    """Sends requests to one server; raises UnreachableError for what a retry may resolve, else RefusedError."""

    def __init__(self, client: AsyncClient, where: ApiLocation, *, timeout_seconds: float) -> None:
        self._client = client
        self._where = where
        self._timeout_seconds = timeout_seconds
        self._slots = asyncio.Semaphore(_MOST_AT_ONCE)

    async def send(
        self,
        method: str,
        path: str,
        what: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Object | None = None,
        timeout_seconds: float | None = None,
        largest_bytes: int = LARGEST_ANSWER_BYTES,
    ) -> Object:
        """Send a request until there is an answer or the timeout is over; return the object.

        Raise TooLargeError for an answer over `largest_bytes`, and EngineError for one that is not an object.
        """
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        content = None if body is None else json.dumps(body).encode()
        pause = Backoff(self._timeout_seconds if timeout_seconds is None else timeout_seconds)
        while True:
            request = self._client.build_request(
                method, path, params=dict(params or {}), content=content, headers={"Content-Type": kind}
            )
            try:
                async with self._slots, asyncio.timeout(_ANSWER_SECONDS):
                    response = await self._client.send(request, stream=True)
                    try:
                        answer = await self._read(response, what, largest_bytes)
                    finally:
                        await response.aclose()
            except TimeoutError as error:
                await pause.wait(unreachable(error, self._where))
            except REQUEST_ERROR as error:
                await pause.wait(unreachable(error, self._where))
            except UnreachableError as error:
                await pause.wait(error)
            except CREDENTIALS_ERRORS as error:
                raise credentials_error(error, self._where) from None
            else:
                return answer

    @asynccontextmanager
    async def stream(
        self, path: str, what: str, params: Mapping[str, str] | tuple[tuple[str, str], ...]
    ) -> AsyncIterator[Response]:
        """Send a request once and yield the streaming response; raise UnreachableError if it is cut off."""
        request = self._client.build_request("GET", path, params=params, timeout=STREAM_TIMEOUT)
        try:
            response = await self._client.send(request, stream=True)
        except REQUEST_ERROR as error:
            raise unreachable(error, self._where) from None
        except CREDENTIALS_ERRORS as error:
            raise credentials_error(error, self._where) from None
        try:
            if response.status_code >= 400:
                await self._refuse(response, what)
            yield response
        except REQUEST_ERROR as error:
            raise unreachable(error, self._where) from None
        finally:
            await response.aclose()

    async def read_refusal(self, path: str, params: tuple[tuple[str, str], ...]) -> Object:
        """Return the error object of a plain GET request; empty if the connection is cut."""
        request = self._client.build_request("GET", path, params=params)
        with suppress(REQUEST_ERROR, TimeoutError):
            async with asyncio.timeout(_ANSWER_SECONDS):
                response = await self._client.send(request, stream=True)
                try:
                    return await _refusal_in(response)
                finally:
                    await response.aclose()
        return {}

    async def _read(self, response: Response, what: str, largest_bytes: int) -> Object:
        """Return the object of a response; raise the error of a refusal."""
        if response.status_code >= 400:
            await self._refuse(response, what)
        answer = _parse(await _content(response, largest_bytes))
        if answer is None:
            raise EngineError(f"the cluster at {self._where.server} did not answer with an object ({what})")
        return answer

    async def _refuse(self, response: Response, what: str) -> None:
        """Raise the error of a response with an error status."""
        status, answer = response.status_code, await _refusal_in(response)
        if status == 429 or status >= 500 or is_from_node(status, answer):
            reported = text(answer.get("message")) or f"HTTP {status}"
            message = f"the cluster at {self._where.server} cannot serve the request now: {reported}"
            raise UnreachableError(message, _asked_to_wait(response))
        raise refusal(status, answer, self._where, what)


async def _refusal_in(response: Response) -> Object:
    content = b""
    with suppress(TooLargeError):
        content = await _content(response, _LARGEST_REFUSAL_BYTES)
    answer = _parse(content)
    return {"message": text(content[:4096].decode(errors="replace"))} if answer is None else answer


async def _content(response: Response, largest_bytes: int) -> bytes:
    content = bytearray()
    async for chunk in response.aiter_bytes():
        content += chunk
        if len(content) > largest_bytes:
            raise TooLargeError(f"the cluster's answer has more than {largest_bytes >> 20} MiB")
    return bytes(content)


def _parse(content: bytes) -> Object | None:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _asked_to_wait(response: Response) -> float | None:
    """Return the seconds of Retry-After; None if there is none."""
    reported = str(response.headers.get("Retry-After", ""))
    return float(reported) if reported.isascii() and reported.isdecimal() and len(reported) <= 9 else None
