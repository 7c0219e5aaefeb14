"""A cluster's API server: objects of any kind as plain dicts, logs as bytes.

Every call is retried while the server does not answer, up to a timeout. An error that a retry cannot resolve is raised
as RefusedError.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from math import inf
from typing import TYPE_CHECKING

from drumline.engine.kubernetes.answer_fields import mapping, text
from drumline.engine.kubernetes.api_errors import (
    ApiLocation,
    RefusedError,
    TooLargeError,
    UnreachableError,
    namespace_error,
    refusal,
)
from drumline.engine.kubernetes.backoff import Backoff
from drumline.engine.kubernetes.connection import open_client
from drumline.engine.kubernetes.paths import Object, Objects, name_of, path_of
from drumline.engine.kubernetes.request import Requests
from drumline.record import Record

if TYPE_CHECKING:
    from httpx2 import AsyncClient

COMMAND_TIMEOUT_SECONDS = 10.0  # a user waits
Accept = Callable[[Object], Awaitable[Object | None]]
_PAGE = 500
_LONGEST_LINE_BYTES = 8 << 20  # of a watch: an object has no more than a few MiB
_LARGEST_RAW_BYTES = 8 << 20
_OTHER_UID = "UID in precondition"
_WATCH_SECONDS = 290  # after this time the server ends a watch; proxies may cut longer ones


class Change(Record):
    """A change that a watch reports. `LISTED` comes first and after lost changes, with all objects; others have one."""

    what: str  # LISTED, ADDED, MODIFIED or DELETED
    objects: tuple[Object, ...]


class Api:
    """A namespace of a cluster; every call is retried while the server does not answer, up to a timeout."""

    def __init__(
        self, client: AsyncClient, where: ApiLocation, *, timeout_seconds: float = COMMAND_TIMEOUT_SECONDS
    ) -> None:
        self.where = where
        self.client = client  # for WebSockets
        self.requests = Requests(client, where, timeout_seconds=timeout_seconds)

    @property
    def namespace(self) -> str:
        """The namespace of all requests."""
        return self.where.namespace

    async def require_namespace(self) -> None:
        """Raise RefusedError if the namespace does not exist; without the permission to read it, assume it does."""
        try:
            if await self.find("Namespace", self.namespace) is None:
                raise namespace_error(self.where)
        except RefusedError as error:
            if error.status != 403:
                raise

    async def create(self, an_object: Object) -> Object:
        """Create an object, unless it exists; return it as the server has it."""
        kind, version = an_object["kind"], an_object["apiVersion"]
        path = path_of(kind, self.namespace, version=version)
        params = {"fieldManager": "drumline"}
        try:
            return await self.requests.send("POST", path, f"create the {kind}", params=params, body=an_object)
        except RefusedError as error:
            if error.reason != "AlreadyExists":
                raise
            return await self._existing(kind, name_of(an_object))

    async def _existing(self, kind: str, name: str) -> Object:
        """Return an object that exists: read it, or if the user may not read it, list objects of its name."""
        try:
            return await self.read(kind, name)
        except RefusedError as error:
            if error.status != 403:
                raise
        for found in await self.list(kind, fields=f"metadata.name={name}"):
            return {"kind": kind, **found}
        raise RefusedError(f"the {kind} {name} was deleted meanwhile", status=404, reason="NotFound")

    async def patch(self, kind: str, name: str, change: Object) -> Object:
        """Merge a change into an object."""
        path = path_of(kind, self.namespace, name=name)
        return await self.requests.send("PATCH", path, f"change the {kind}", body=change)

    async def delete(
        self, kind: str, name: str, *, grace_seconds: float | None = None, uid: str = "", policy: str = "Background"
    ) -> bool:
        """Delete an object if it exists and, if `uid` is not empty, has this uid; return whether it was deleted."""
        body: Object = {"propagationPolicy": policy}
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = max(0, round(grace_seconds))
        if uid:
            body["preconditions"] = {"uid": uid}
        path, what, pause = path_of(kind, self.namespace, name=name), f"delete the {kind} {name}", Backoff()
        while True:
            try:
                await self.requests.send("DELETE", path, what, body=body)
            except RefusedError as error:
                if error.status == 404 or (error.status == 409 and _OTHER_UID in error.message):
                    return False
                if error.status != 409:
                    raise
                await pause.wait(UnreachableError(error.message))  # it was changed at the same time
            else:
                return True

    async def read(self, kind: str, name: str) -> Object:
        """Return an object by name; raise RefusedError with status 404 if it does not exist."""
        return await self.requests.send("GET", path_of(kind, self.namespace, name=name), f"read the {kind} {name}")

    async def find(self, kind: str, name: str) -> Object | None:
        """Return an object by name; None if it does not exist."""
        try:
            return await self.read(kind, name)
        except RefusedError as error:
            if error.status == 404:
                return None
            raise

    async def list(self, kind: str, selector: str = "", *, fields: str = "") -> Objects:
        """Return all objects of a kind that match a label selector and a field selector."""
        return (await self._list(kind, selector, fields))[0]

    async def list_everywhere(self, kind: str, accept: Accept) -> Objects:
        """Return the objects of a kind in all namespaces, each as `accept` returns it; None leaves an object out."""
        return (await self._list(kind, "", "", accept=accept, path=path_of(kind, "")))[0]

    async def raw_get(self, path: str, **params: str) -> Object:
        """Return the object at a path; raise TooLargeError over 8 MiB, since a node may have written it."""
        return await self.requests.send("GET", path, f"read {path}", params=params, largest_bytes=_LARGEST_RAW_BYTES)

    async def watch(
        self, kind: str, selector: str = "", *, fields: str = "", accept: Accept | None = None
    ) -> AsyncIterator[Change]:
        """Yield all objects, then every change, without end.

        An interrupted watch resumes; where the server no longer has that version, all objects are listed again.
        `accept` returns an object, the parts of it that are needed, or None to leave it out.
        Raise RefusedError for an error that a retry cannot resolve.
        """
        version, pause = "", Backoff()
        while True:
            if not version:
                found, version = await self._list(kind, selector, fields, accept=accept, timeout_seconds=inf)
                yield Change("LISTED", tuple(found))
            try:
                async for what, seen in self._changes(kind, selector, fields, version):
                    version = seen["metadata"]["resourceVersion"]
                    pause.reset()
                    wanted = await accept(seen) if accept and what != "BOOKMARK" else seen
                    if what != "BOOKMARK" and wanted is not None:
                        yield Change(what, (wanted,))
            except UnreachableError as trouble:
                await pause.wait(trouble)
            except RefusedError as error:
                if error.status != 410:
                    raise
                version = ""  # the version has expired: list again

    @asynccontextmanager
    async def pod_log(
        self, pod: str, container: str, *, since: str = "", follow: bool = True
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Yield the bytes of a container's log, each line with its time in front, from `since` on (RFC 3339).

        Raise RefusedError if there is no log, and UnreachableError if the connection is cut.
        """
        path = f"{path_of('Pod', self.namespace, name=pod)}/log"
        params = {"container": container, "timestamps": "true", "follow": "true" if follow else "false"}
        if since:
            params["sinceTime"] = since
        async with self.requests.stream(path, f"read the log of {pod}", params) as response:
            yield response.aiter_bytes()

    async def _list(
        self,
        kind: str,
        selector: str,
        fields: str,
        *,
        accept: Accept | None = None,
        timeout_seconds: float | None = None,
        path: str = "",
    ) -> tuple[Objects, str]:
        """List page by page; if a page is too large, with fewer objects per page."""
        path, what = path or path_of(kind, self.namespace), f"list {kind}s"
        found: Objects = []
        size, more = _PAGE, ""
        while True:
            params = _selection(selector, fields) | {"limit": str(size)} | ({"continue": more} if more else {})
            try:
                page = await self.requests.send("GET", path, what, params=params, timeout_seconds=timeout_seconds)
            except TooLargeError:
                if size == 1:
                    raise
                size = max(1, size // 10)
                continue
            for each in page.get("items") or ():
                wanted = await accept(each) if accept else each
                if wanted is not None:
                    found.append(wanted)
            if not (more := str(mapping(page.get("metadata")).get("continue") or "")):
                return found, str(mapping(page.get("metadata")).get("resourceVersion") or "")

    async def _changes(self, kind: str, selector: str, fields: str, version: str) -> AsyncIterator[tuple[str, Object]]:
        """Yield the changes of one watch request, until it is cut or the server ends it."""
        params = _selection(selector, fields) | {
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH_SECONDS),
        }
        what = f"watch {kind}s"
        async with self.requests.stream(path_of(kind, self.namespace), what, params) as response:
            async for line in _lines(response.aiter_bytes()):
                yield self._read_event(line, what)

    def _read_event(self, line: bytes, what: str) -> tuple[str, Object]:
        """Return the kind of change and the object in one line of a watch; raise its error if it reports one."""
        try:
            event = mapping(json.loads(line))
        except (ValueError, RecursionError):
            event = {}
        kind, seen = event.get("type"), event.get("object")
        if kind == "ERROR":
            error = mapping(seen)
            code = error.get("code")
            status = code if isinstance(code, int) else 500
            if status >= 500 or status == 429:
                raise UnreachableError(text(error.get("message")) or f"HTTP {status}")
            raise refusal(status, error, self.where, what)
        if not isinstance(kind, str) or not isinstance(seen, dict) or not _is_named(seen):
            raise UnreachableError(f"the cluster at {self.where.server} sent an invalid watch event ({what})")
        return kind, seen


@asynccontextmanager
async def open_api(
    context: str | None = None,
    namespace: str | None = None,
    *,
    kubeconfig: str | None = None,
    timeout_seconds: float = COMMAND_TIMEOUT_SECONDS,
) -> AsyncIterator[Api]:
    """Yield the API of a namespace of a cluster; nothing is sent yet.

    By default, context and namespace are those that `kubectl` would choose.
    """
    client, where = open_client(context, namespace, kubeconfig)
    async with client:
        yield Api(client, where, timeout_seconds=timeout_seconds)


def _selection(selector: str, fields: str) -> dict[str, str]:
    return {name: value for name, value in (("labelSelector", selector), ("fieldSelector", fields)) if value}


def _is_named(an_object: Object) -> bool:
    metadata = mapping(an_object.get("metadata"))
    return isinstance(metadata.get("resourceVersion"), str)


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the complete lines of chunks; raise UnreachableError for a line over 8 MiB."""
    kept: list[bytes] = []
    size = 0
    async for chunk in chunks:
        *whole, rest = chunk.split(b"\n")
        for line in whole:
            kept.append(line)
            if any(kept):
                yield b"".join(kept)
            kept, size = [], 0
        kept.append(rest)
        size += len(rest)
        if size > _LONGEST_LINE_BYTES:
            raise UnreachableError(f"a watch sent a line of more than {_LONGEST_LINE_BYTES >> 20} MiB")
