"""Requests to a cluster's API server: made again while nobody answers, and judged by what the answer says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from drumline.engine.kubernetes.door import CONFUSED, CUT, STREAM_TIMEOUT, away, no_credentials
from drumline.engine.kubernetes.paths import Object
from drumline.engine.kubernetes.pause import Pause
from drumline.engine.kubernetes.refusal import AwayError, Where, is_from_node, refusal

if TYPE_CHECKING:
    from httpx2 import AsyncClient, Response

_MOST_AT_ONCE = 32


class Requests:
    """Asks one server, so many things at once; raises an AwayError for what waiting may change, else a RefusedError."""

    def __init__(self, client: AsyncClient, where: Where, *, patience_seconds: float) -> None:
        self._client = client
        self._where = where
        self._patience_seconds = patience_seconds
        self._room = asyncio.Semaphore(_MOST_AT_ONCE)

    async def ask(
        self,
        method: str,
        path: str,
        what: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Object | None = None,
        patience_seconds: float | None = None,
    ) -> Object:
        """Ask for an object until there is an answer, or patience is out; return it."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        content = None if body is None else json.dumps(body).encode()
        pause = Pause(self._patience_seconds if patience_seconds is None else patience_seconds)
        while True:
            try:
                async with self._room:
                    response = await self._client.request(
                        method, path, params=dict(params or {}), content=content, headers={"Content-Type": kind}
                    )
                self._judge(response, what)
            except CUT as error:
                await pause.take(away(error, self._where))
            except AwayError as trouble:
                await pause.take(trouble)
            except CONFUSED as error:
                raise no_credentials(error, self._where) from None
            else:
                answer: Object = response.json()
                return answer

    @asynccontextmanager
    async def stream(self, path: str, what: str, params: Mapping[str, str]) -> AsyncIterator[Response]:
        """Ask once, for what comes piece by piece; raise AwayError also when it is cut off."""
        request = self._client.build_request("GET", path, params=dict(params), timeout=STREAM_TIMEOUT)
        try:
            response = await self._client.send(request, stream=True)
        except CUT as error:
            raise away(error, self._where) from None
        except CONFUSED as error:
            raise no_credentials(error, self._where) from None
        try:
            if response.status_code >= 400:
                await response.aread()
            self._judge(response, what)
            yield response
        except CUT as error:
            raise away(error, self._where) from None
        finally:
            await response.aclose()

    def _judge(self, response: Response, what: str) -> None:
        """Raise whatever an answer means that is not yes."""
        status = response.status_code
        if status < 400:
            return
        try:
            answer = response.json()
        except ValueError:
            answer = {"message": response.text.strip()[:500]}
        answer = answer if isinstance(answer, dict) else {}
        if status == 429 or status >= 500 or is_from_node(status, answer):
            said = str(answer.get("message") or f"HTTP {status}")
            raise AwayError(f"the cluster at {self._where.server} answers: {said}", _asked_to_wait(response))
        raise refusal(status, answer, self._where, what)


def _asked_to_wait(response: Response) -> float | None:
    try:
        return float(response.headers.get("Retry-After", ""))
    except ValueError:
        return None
