"""What can be asked of a cluster's API server: plain dicts in and out, whatever their kind, and logs as bytes.

Every call is made again while nobody answers, for as long as there is patience; what will not change by waiting is
raised as a RefusedError, in a sentence.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from drumline.engine.kubernetes.door import open_door
from drumline.engine.kubernetes.paths import Object, Objects, name_of, path_of
from drumline.engine.kubernetes.pause import Pause
from drumline.engine.kubernetes.refusal import AwayError, RefusedError, Where, no_namespace, refusal
from drumline.engine.kubernetes.request import Requests

if TYPE_CHECKING:
    from httpx2 import AsyncClient

COMMAND_PATIENCE_SECONDS = 10.0  # somebody sits there and waits
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
        self._requests = Requests(client, where, patience_seconds=patience_seconds)

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
            return await self._requests.ask("POST", path, f"create the {kind}", params=params, body=an_object)
        except RefusedError as error:
            if error.reason != "AlreadyExists":
                raise
            return await self._requests.ask("GET", f"{path}/{name_of(an_object)}", f"read the {kind}")

    async def create_all(self, objects: Iterable[Object]) -> Objects:
        """Create all of these, many at once; return them in their order, or raise the first refusal."""
        return list(await asyncio.gather(*(self.create(each) for each in objects)))

    async def patch(self, kind: str, name: str, change: Object) -> Object:
        """Merge a change into an object."""
        path = path_of(kind, self.namespace, name=name)
        return await self._requests.ask("PATCH", path, f"change the {kind}", body=change)

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
                await self._requests.ask("DELETE", path, what, body=body)
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
        return await self._requests.ask("GET", path_of(kind, self.namespace, name=name), f"read the {kind} {name}")

    async def list(self, kind: str, selector: str = "", *, fields: str = "") -> Objects:
        """All objects of a kind with these labels."""
        return (await self._list(kind, selector, fields))[0]

    async def raw_get(self, path: str, **params: str) -> Object:
        """Whatever is at a path."""
        return await self._requests.ask("GET", path, f"read {path}", params=params)

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
        async with self._requests.stream(path, f"read the log of {pod}", params) as response:
            yield response.aiter_bytes()

    async def _list(
        self, kind: str, selector: str, fields: str, *, patience_seconds: float | None = None
    ) -> tuple[Objects, str]:
        path, what = path_of(kind, self.namespace), f"list {kind}s"
        found: Objects = []
        params = _selection(selector, fields) | {"limit": str(_PAGE)}
        while True:
            page = await self._requests.ask("GET", path, what, params=params, patience_seconds=patience_seconds)
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
        async with self._requests.stream(path_of(kind, self.namespace), what, params) as response:
            async for line in _lines(response.aiter_bytes()):
                event = json.loads(line)
                if event["type"] == "ERROR":
                    status = int(event["object"].get("code") or 500)
                    if status >= 500 or status == 429:
                        raise AwayError(str(event["object"].get("message")))
                    raise refusal(status, event["object"], self.where, what)
                yield event["type"], event["object"]


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


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same bytes, line by line; one that was cut off is none."""
    kept = b""
    async for chunk in chunks:
        *whole, kept = (kept + chunk).split(b"\n")
        for line in whole:
            if line:
                yield line
