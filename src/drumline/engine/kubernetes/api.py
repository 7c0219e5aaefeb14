"""What can be asked of a cluster's API server: plain dicts in and out, whatever their kind, and logs as bytes.

Every call is made again while nobody answers, for as long as there is patience; what will not change by waiting is
raised as a RefusedError, in a sentence.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from drumline.engine.kubernetes.door import CONFUSED, CUT, STREAM_TIMEOUT, away, no_credentials, open_door
from drumline.engine.kubernetes.paths import Object, Objects, name_of, path_of
from drumline.engine.kubernetes.pause import Pause
from drumline.engine.kubernetes.refusal import AwayError, RefusedError, Where, no_namespace, refusal

if TYPE_CHECKING:
    from httpx2 import AsyncClient, Response

COMMAND_PATIENCE_SECONDS = 10.0  # somebody sits there and waits
_MOST_AT_ONCE = 32
_PAGE = 500
_WATCH_SECONDS = 290  # then the server ends it in order; nobody in between needs to cut it off


class Change(NamedTuple):
    """What a watch has seen: `LISTED` is everything there is, and comes first and after each gap; else one object."""

    what: str  # LISTED, ADDED, MODIFIED or DELETED
    objects: tuple[Object, ...]


class Api:
    """A namespace of a cluster; every call is made again while nobody answers, for as long as there is patience."""

    def __init__(
        self, client: AsyncClient, where: Where, *, patience_seconds: float = COMMAND_PATIENCE_SECONDS
    ) -> None:
        self.where = where
        self._client = client
        self._patience_seconds = patience_seconds
        self._room = asyncio.Semaphore(_MOST_AT_ONCE)

    @property
    def client(self) -> AsyncClient:
        """What it asks with; for streams that go both ways."""
        return self._client

    @property
    def namespace(self) -> str:
        """Where all of it happens."""
        return self.where.namespace

    async def require_namespace(self) -> None:
        """Raise RefusedError if it is not there; who may not ask is believed."""
        try:
            await self.read("Namespace", self.namespace)
        except RefusedError as error:
            if error.status == 404:
                raise no_namespace(self.where) from None
            if error.status != 403:
                raise

    async def create(self, an_object: Object, *, dry_run: bool = False) -> Object:
        """Create an object and return it as it is then; one that is there already is returned as it is."""
        kind, version = an_object["kind"], an_object["apiVersion"]
        path = path_of(kind, self.namespace, version=version)
        params = {"fieldManager": "drumline", **({"dryRun": "All"} if dry_run else {})}
        try:
            return await self._ask("POST", path, f"create the {kind}", params=params, body=an_object)
        except RefusedError as error:
            if error.reason != "AlreadyExists":
                raise
            return await self._ask("GET", f"{path}/{name_of(an_object)}", f"read the {kind}")

    async def create_all(self, objects: Iterable[Object]) -> Objects:
        """Create all of these, many at once; return them in their order, or raise the first refusal."""
        return list(await asyncio.gather(*(self.create(each) for each in objects)))

    async def patch(self, kind: str, name: str, change: Object) -> Object:
        """Merge a change into an object."""
        return await self._ask("PATCH", path_of(kind, self.namespace, name=name), f"change the {kind}", body=change)

    async def delete(
        self, kind: str, name: str, *, grace_seconds: float | None = None, uid: str = "", policy: str = "Background"
    ) -> bool:
        """Delete an object, if it is there and still that one; return whether it was."""
        body: Object = {"propagationPolicy": policy}
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = max(0, round(grace_seconds))
        if uid:
            body["preconditions"] = {"uid": uid}
        path, what, pause = path_of(kind, self.namespace, name=name), f"delete the {kind} {name}", Pause(inf)
        while True:
            try:
                await self._ask("DELETE", path, what, body=body)
            except RefusedError as error:
                if error.status == 404 or (error.status == 409 and uid):  # it is another one by now
                    return False
                if error.status != 409:
                    raise
                await pause.take(AwayError(error.message))  # somebody has changed it at the same moment
            else:
                return True

    async def read(self, kind: str, name: str) -> Object:
        """One object by its name; raise RefusedError with status 404 if it is not there."""
        return await self._ask("GET", path_of(kind, self.namespace, name=name), f"read the {kind} {name}")

    async def list(self, kind: str, selector: str = "", *, fields: str = "") -> Objects:
        """All objects of a kind with these labels."""
        return (await self._list(kind, selector, fields))[0]

    async def raw_get(self, path: str, **params: str) -> Object:
        """Whatever is at a path."""
        return await self._ask("GET", path, f"read {path}", params=params)

    async def raw_text(self, path: str, **params: str) -> str:
        """The same, of what is no object."""
        response = await self._patiently("GET", path, f"read {path}", params=params)
        return response.text

    async def watch(self, kind: str, selector: str = "", *, fields: str = "") -> AsyncIterator[Change]:
        """Everything there is, then everything that happens, for ever.

        It goes on where it was after a break; where the server has forgotten that, everything is listed once more.
        Raise only what will not change by waiting.
        """
        version, pause = "", Pause(inf)
        while True:
            if not version:
                found, version = await self._list(kind, selector, fields, patience_seconds=inf)
                yield Change("LISTED", tuple(found))
            try:
                async for what, seen in self._changes(kind, selector, fields, version):
                    version = seen["metadata"]["resourceVersion"]
                    pause.rest()
                    if what != "BOOKMARK":
                        yield Change(what, (seen,))
            except AwayError as trouble:
                await pause.take(trouble)
            except RefusedError as error:
                if error.status != 410:
                    raise
                version = ""  # too long ago: begin again

    @asynccontextmanager
    async def pod_log(
        self, pod: str, container: str, *, since: str = "", follow: bool = True
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The bytes of a container's log as they come, each line behind its time, from a moment on (RFC 3339).

        Raise RefusedError if there is none, and AwayError if the line is cut: whoever reads knows where to go on.
        """
        path = f"{path_of('Pod', self.namespace, name=pod)}/log"
        params = {"container": container, "timestamps": "true", "follow": "true" if follow else "false"}
        if since:
            params["sinceTime"] = since
        async with self._stream(path, f"read the log of {pod}", params) as response:
            yield response.aiter_bytes()

    async def _list(
        self, kind: str, selector: str, fields: str, *, patience_seconds: float | None = None
    ) -> tuple[Objects, str]:
        path, what = path_of(kind, self.namespace), f"list {kind}s"
        found: Objects = []
        params = _selection(selector, fields) | {"limit": str(_PAGE)}
        while True:
            page = await self._ask("GET", path, what, params=params, patience_seconds=patience_seconds)
            found += page.get("items") or ()
            if not (more := page["metadata"].get("continue")):
                return found, page["metadata"]["resourceVersion"]
            params["continue"] = more

    async def _changes(self, kind: str, selector: str, fields: str, version: str) -> AsyncIterator[tuple[str, Object]]:
        """What one watch sees, until it is cut or the server has had enough."""
        params = _selection(selector, fields) | {
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH_SECONDS),
        }
        what = f"watch {kind}s"
        async with self._stream(path_of(kind, self.namespace), what, params) as response:
            async for line in _lines(response.aiter_bytes()):
                event = json.loads(line)
                if event["type"] == "ERROR":
                    status = int(event["object"].get("code") or 500)
                    if status >= 500 or status == 429:
                        raise AwayError(str(event["object"].get("message")))
                    raise refusal(status, event["object"], self.where, what)
                yield event["type"], event["object"]

    async def _ask(
        self,
        method: str,
        path: str,
        what: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Object | None = None,
        patience_seconds: float | None = None,
    ) -> Object:
        response = await self._patiently(
            method, path, what, params=params, body=body, patience_seconds=patience_seconds
        )
        answer: Object = response.json()
        return answer

    async def _patiently(
        self,
        method: str,
        path: str,
        what: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Object | None = None,
        patience_seconds: float | None = None,
    ) -> Response:
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
                await pause.take(away(error, self.where))
            except AwayError as trouble:
                await pause.take(trouble)
            except CONFUSED as error:
                raise no_credentials(error, self.where) from None
            else:
                return response

    @asynccontextmanager
    async def _stream(self, path: str, what: str, params: Mapping[str, str]) -> AsyncIterator[Response]:
        request = self._client.build_request("GET", path, params=dict(params), timeout=STREAM_TIMEOUT)
        try:
            response = await self._client.send(request, stream=True)
        except CUT as error:
            raise away(error, self.where) from None
        except CONFUSED as error:
            raise no_credentials(error, self.where) from None
        try:
            if response.status_code >= 400:
                await response.aread()
            self._judge(response, what)
            yield response
        except CUT as error:
            raise away(error, self.where) from None
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
        if status == 429 or status >= 500:
            said = str(answer.get("message") or f"HTTP {status}")
            raise AwayError(f"the cluster at {self.where.server} answers: {said}", _asked_to_wait(response))
        raise refusal(status, answer if isinstance(answer, dict) else {}, self.where, what)


@asynccontextmanager
async def open_api(
    context: str | None = None,
    namespace: str | None = None,
    *,
    kubeconfig: str | None = None,
    patience_seconds: float = COMMAND_PATIENCE_SECONDS,
) -> AsyncIterator[Api]:
    """Go through the door to a namespace of a cluster: of this context, else as `kubectl` would. Nothing is said."""
    client, where = open_door(context, namespace, kubeconfig)
    async with client:
        yield Api(client, where, patience_seconds=patience_seconds)


def _selection(selector: str, fields: str) -> dict[str, str]:
    return {name: value for name, value in (("labelSelector", selector), ("fieldSelector", fields)) if value}


def _asked_to_wait(response: Response) -> float | None:
    try:
        return float(response.headers.get("Retry-After", ""))
    except ValueError:
        return None


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same bytes, line by line; one that was cut off is none."""
    kept = b""
    async for chunk in chunks:
        *whole, kept = (kept + chunk).split(b"\n")
        for line in whole:
            if line:
                yield line
