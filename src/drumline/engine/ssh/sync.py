"""Send the project of a run to its hosts, and fetch the output of its chief.

If the hosts share no folder, each has its own OUTPUT_DIR. The chief's is fetched while the chief runs and after its
end. Before the next attempt it is sent to all hosts of that attempt, since workers read checkpoints, too.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from drumline.engine.agent.client import Agent
from drumline.engine.agent.errors import UnreachableError
from drumline.engine.agent.fetch import fetch
from drumline.engine.agent.send import SentFolder, send_folder, send_project
from drumline.engine.project.excluded import excluded_folders
from drumline.engine.project.snapshot import Snapshot, take_snapshot
from drumline.engine.project.tree import left_out_warning
from drumline.engine.protocol import Site
from drumline.engine.ssh.agents import Route, open_agent
from drumline.engine.ssh.folders import AMONG_CODE, AMONG_CODE_HINT, holds, local_folders, read_origin
from drumline.engine.ssh.plan_options import hosts_of
from drumline.engine.untrusted import clean_text
from drumline.errors import EngineError, NotFoundError
from drumline.plan.types import Place, Plan
from drumline.record import Record
from drumline.run.event import ProjectCarried
from drumline.run.origin import ORIGIN, Origin
from drumline.runtime.private import write_file

FETCH_SECONDS = 15.0  # between two fetches while the chief runs
FETCH_SHARE = 4.0  # the least time between two fetches, as a multiple of the duration of the last one
_SOON_SECONDS = 2.0  # before the first fetch
_STALLED_SECONDS = 30.0
_STALLED_BYTES = 1 << 16
_TRIES = 3  # for an output that still changes after the end of the chief
_MOST_WARNINGS = 20  # per supervisor about the output: a host may send another reason each time
_MOST_LEFT_OUT = 10_000  # links of which the user was warned
_MOST_KNOWN_CHARS = 32 << 20  # in the list of paths that were fetched before


class RoutedHost(Protocol):
    """A host, connected or not."""

    @property
    def route(self) -> Route | None:
        """Return how agents are started there; None if the host is not connected."""
        ...

    @property
    def received_bytes(self) -> int:
        """Return the number of bytes that agents there have sent over this connection."""
        ...


class Stage(Record):
    """The output before an attempt began: its origin, and a snapshot of each of its folders on this machine."""

    attempt: int
    before: Origin | None
    local: Mapping[str, Snapshot]


class ProjectSync:
    """Sends and fetches the files of one run."""

    def __init__(self, plan: Plan, site: Site, run_dir: Path, hosts: Mapping[str, RoutedHost]) -> None:
        self._plan = plan
        self._site = site
        self._run_dir = run_dir
        self._hosts = hosts
        self._options = hosts_of(plan)
        self._warnings: list[str] = []
        self._warned = 0  # the number of warnings so far
        self._left_out: set[str] = set()  # links of the output of which the user was warned
        self._origin = read_origin(run_dir)
        self._snapshot: Snapshot | None = None
        self._carried: list[SentFolder] = []
        self._stage: Stage | None = None
        self._staging = asyncio.Lock()
        self._fetching = asyncio.Lock()

    async def deliver(self, host: str) -> None:
        """Send the project to this host; raise EngineError if its disk has too little free space."""
        route = self._reached(host)
        async with self._staging:
            if self._snapshot is None:
                self._snapshot = await asyncio.to_thread(self._take_snapshot)
        folder = self._project_on_host(route.base)
        async with await self._open(route) as agent:
            carried = await send_project(agent, self._snapshot, folder, store=f"{route.base}/blobs")
        self._carried.append(carried)

    async def supply(self, host: str, attempt: int, chief: str, places: Mapping[str, Place]) -> None:
        """Send all files that an attempt needs to this host: the project, and the output of the chiefs so far.

        `places` has one place for each host of the attempt; `chief` is the host of the chief.
        """
        async with self._staging:
            if self._stage is None or self._stage.attempt != attempt:
                self._snapshot = None if self._stage else self._snapshot  # the project may have changed since
                before = await self._settle()
                self._stage = Stage(attempt, before, await asyncio.to_thread(self._snapshot_output))
        before, local = self._stage.before, self._stage.local
        await self.deliver(host)
        there = _folders(places[host])
        # The host of the last chief has the latest output itself, unless all of it was fetched.
        if before is None or host != before.host or before.is_whole:
            was_chief = before is not None and host in before.chiefs and not _is_project(self._plan)
            for kind, snapshot in local.items():
                route = self._reached(host)
                if before and set(before.chiefs) - {host} and holds(there[kind], self._project_on_host(route.base)):
                    raise EngineError(f"the {kind} is not sent to {host}: {AMONG_CODE}", hint=AMONG_CODE_HINT)
                async with await self._open(route) as agent:
                    await send_folder(agent, snapshot, there[kind], exactly=was_chief)
        if host == chief:
            folders = {str(here): there[kind] for kind, here in self._folders_here().items()}
            chiefs = tuple(dict.fromkeys((*(before.chiefs if before else ()), chief)))
            self._note(Origin(chief, there["output"], folders, before.paths if before else {}, chiefs))

    def carried(self) -> ProjectCarried | None:
        """Return a summary of the project's transfers to hosts since the last call; None if nothing was sent."""
        found, self._carried = self._carried, []
        if not any(each.written for each in found):
            return None
        sent, size = max(each.sent_bytes for each in found), found[-1].size_bytes
        return ProjectCarried(found[-1].files, size, len(found), None if sent >= size else sent)

    async def _settle(self) -> Origin | None:
        """Fetch the remaining output of the last chief, if its host answers."""
        origin = self._origin
        route = self._hosts[origin.host].route if origin else None
        if origin and route and not origin.is_whole:
            with suppress(EngineError):
                await self._collect()
        return self._origin

    async def collect(self) -> None:
        """Fetch the output of the chief, which has ended.

        Raise EngineError if the output cannot be fetched, or hosts send almost nothing for a while.
        """
        await _unless_stalled(self._collect(), self._hosts.values())

    async def _collect(self) -> None:
        for _ in range(_TRIES):
            if self._origin is None or self._origin.is_shared or self._origin.is_whole:
                return
            await self._fetch(self._reached(self._origin.host), settled=True)

    async def follow(self) -> AsyncIterator[str]:
        """Fetch the chief's output repeatedly until this task is cancelled; yield warnings, not the same one twice."""
        warned = ""
        pause = min(FETCH_SECONDS, _SOON_SECONDS)
        while True:
            await asyncio.sleep(pause)
            began = time.monotonic()
            origin = self._origin
            route = self._hosts[origin.host].route if origin else None
            if origin is None or route is None or origin.is_shared or origin.is_whole:
                continue
            try:
                await self._fetch(route, settled=False)
            except EngineError as error:
                if (
                    self._hosts[origin.host].route and error.message != warned
                ):  # else the host is lost, which is reported elsewhere
                    warned = error.message
                    self._warn(f"the output is not fetched: {warned}")
            for warning in self.take_warnings():
                yield warning
            pause = max(min(FETCH_SECONDS, 2 * pause), FETCH_SHARE * (time.monotonic() - began))

    def _project_on_host(self, base: str) -> str:
        return f"{base}/runs/{self._options.unique}/project"

    def _take_snapshot(self) -> Snapshot:
        return take_snapshot(self._site.directory, without=excluded_folders(self._plan, self._site))

    def _reached(self, host: str) -> Route:
        route = self._hosts[host].route
        if route is None:
            raise UnreachableError(f"{host} does not answer")
        return route

    def _folders_here(self) -> dict[str, Path]:
        return {} if self._options.shared else local_folders(self._plan, self._site.directory, self._run_dir)

    def _snapshot_output(self) -> dict[str, Snapshot]:
        found = {kind: here for kind, here in self._folders_here().items() if here.is_dir() and any(here.iterdir())}
        return {kind: take_snapshot(here, rules=False) for kind, here in found.items()}

    async def _open(self, route: Route) -> Agent:
        return await open_agent(route.machine, self._options, counts=True)

    async def _fetch(self, route: Route, *, settled: bool) -> None:
        """Fetch new files of the output, and record which paths were fetched."""
        async with self._fetching, await self._open(route) as agent:
            origin = self._origin
            if origin is None:
                return
            is_whole, paths = True, dict(origin.paths)
            for here, there in origin.folders.items():
                with suppress(NotFoundError):  # nothing was written so far
                    found = await fetch(
                        agent,
                        there,
                        Path(here),
                        settled=settled,
                        known=paths.get(here, ()),
                    )
                    self._warn_left_out(found.left_out)
                    is_whole &= found.is_whole
                    before = () if found.is_whole else paths.get(here, ())
                    if sum(map(len, before)) > _MOST_KNOWN_CHARS:  # then local copies stay if the host removes a file
                        before = ()
                    paths[here] = tuple(sorted(found.paths.union(before)))
            if self._origin is origin:  # else another attempt has begun
                self._note(origin.replace(paths=paths, fetched_at=time.time(), is_whole=is_whole and settled))

    def _warn_left_out(self, links: Sequence[str]) -> None:
        is_full = len(self._left_out) >= _MOST_LEFT_OUT
        if new := [each for each in links if not is_full and each not in self._left_out]:
            self._left_out.update(new[: _MOST_LEFT_OUT - len(self._left_out)])
            self._warn(f"the output is fetched, but {left_out_warning(new)}")

    def _warn(self, message: str) -> None:
        self._warned += 1
        if self._warned <= _MOST_WARNINGS:
            self._warnings.append(clean_text(message))

    def take_warnings(self) -> list[str]:
        """Return the warnings since the last call, about files that were not fetched."""
        found, self._warnings = self._warnings, []
        return found

    def _note(self, origin: Origin) -> None:
        self._origin = origin
        path = self._run_dir / ORIGIN
        try:
            write_file(path, origin.to_json().encode())
        except OSError as error:
            raise EngineError(f"{path} cannot be written: {error.strerror}") from None


def _folders(place: Place) -> dict[str, str]:
    return {"output": place.output_dir, "checkpoint": place.checkpoint_dir}


def _is_project(plan: Plan) -> bool:
    """Return whether the output is the project's folder."""
    return plan.output is not None and os.path.normpath(plan.output) == "."


async def _unless_stalled(fetching: Coroutine[Any, Any, None], hosts: Collection[RoutedHost]) -> None:
    """Await a fetch; raise UnreachableError if hosts send almost nothing for `_STALLED_SECONDS`."""
    task = asyncio.ensure_future(fetching)
    received = _received_bytes(hosts)
    try:
        while not (await asyncio.wait({task}, timeout=_STALLED_SECONDS))[0]:
            before, received = received, _received_bytes(hosts)
            if abs(received - before) < _STALLED_BYTES:
                raise UnreachableError(f"its host has sent almost nothing for {_STALLED_SECONDS:g} s")
        await task
    finally:
        task.cancel()


def _received_bytes(hosts: Iterable[RoutedHost]) -> int:
    """Return the number of bytes that all hosts have sent; it decreases if a connection breaks."""
    return sum(host.received_bytes for host in hosts)
