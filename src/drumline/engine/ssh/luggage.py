"""What a run takes along to its hosts, and what it brings back: the project, and the output of its chief.

Where the hosts have no folder in common, OUTPUT_DIR is one of each host. The chief's is fetched while it writes, and
when it has ended; before the next attempt it is laid out on every host of that, since workers read checkpoints too.
"""

from __future__ import annotations

import asyncio
import os
import posixpath
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from drumline.engine.agent.bootstrap import Machine
from drumline.engine.agent.client import Agent
from drumline.engine.agent.errors import AwayError
from drumline.engine.agent.fetch import fetch
from drumline.engine.agent.send import Carried, carry, lay_out
from drumline.engine.project.own import own_folders
from drumline.engine.project.size import list_largest
from drumline.engine.project.snapshot import Snapshot, take
from drumline.engine.project.tree import OWN, left_out_warning, walk
from drumline.engine.protocol import Site
from drumline.engine.ssh.agents import open_agent
from drumline.engine.ssh.planned import Hosts, hosts_of
from drumline.engine.untrusted import clean_text
from drumline.errors import EngineError, InputError, NotFoundError
from drumline.plan.types import Place, Plan
from drumline.record import Record
from drumline.run.event import ProjectCarried
from drumline.run.origin import ORIGIN, Origin, fetched_folder, origin_from_json
from drumline.runtime.private import write_file
from drumline.words import bulk

FETCH_SECONDS = (
    15.0  # between two looks at what the chief has written, and no less than so many times the last one took
)
FETCH_SHARE = 4.0
_SOON_SECONDS = 2.0  # before the first look
_LARGE_BYTES = 1 << 30
_TRIES = 3  # for an output that should be at rest and is not
_MOST_WARNINGS = 20  # of one supervisor about the output: a host may give another reason each time
_MOST_LEFT_OUT = 10_000  # links that are remembered
_MOST_KNOWN_CHARS = 32 << 20  # of paths that were fetched before
_AMONG_CODE = "one host could replace the code that runs on the others, since it is the project's folder or holds it"
_AMONG_CODE_HINT = "name a folder of its own, as `output: results`, or one that all hosts share: `ssh: {shared: PATH}`"


class Way(Record):
    """The way to a host, and the folder of all runs there."""

    shell: Machine
    base: str


class Stage(Record):
    """An attempt before it begins: whose output there was before, and what of it is here, by what it is."""

    attempt: int
    before: Origin | None
    local: Mapping[str, Snapshot]


class Luggage:
    """What one run takes along and brings back.

    `way` is how hosts are reached that answer just now; `warn` tells the user what is not fetched.
    """

    def __init__(
        self,
        plan: Plan,
        site: Site,
        run_dir: Path,
        way: Callable[[str], Way | None],
        warn: Callable[[str], object],
    ) -> None:
        self._plan = plan
        self._site = site
        self._run_dir = run_dir
        self._way = way
        self._warn = warn
        self._warnings = 0
        self._left_out: set[str] = set()  # links of the output that the user was told of
        self._origin = read_origin(run_dir)
        self._snapshot: Snapshot | None = None
        self._carried: list[Carried] = []
        self._stage: Stage | None = None
        self._staging = asyncio.Lock()
        self._fetching = asyncio.Lock()

    async def deliver(self, host: str) -> None:
        """Have the project on this host as it is here; raise EngineError if it has no room for it."""
        way = self._reached(host)
        async with self._staging:
            if self._snapshot is None:
                self._snapshot = await asyncio.to_thread(self._look)
        folder = self._project_there(way.base)
        async with await self._open(way) as agent:
            carried = await carry(agent, self._snapshot, folder, store=f"{way.base}/blobs")
        self._carried.append(carried)

    async def supply(self, host: str, attempt: int, chief: str, places: Mapping[str, Place]) -> None:
        """Have on this host all that an attempt needs: the project, and what chiefs have written so far.

        `places` has one place of each host of the attempt; `chief` is one of them.
        """
        async with self._staging:
            if self._stage is None or self._stage.attempt != attempt:
                self._snapshot = None if self._stage else self._snapshot  # it may have changed since
                before = await self._settle()
                self._stage = Stage(attempt, before, await asyncio.to_thread(self._look_at_output))
        before, local = self._stage.before, self._stage.local
        await self.deliver(host)
        there = _folders(places[host])
        if before is None or host != before.host or before.is_whole:  # else who wrote it has more of it
            was_chief = before is not None and host in before.chiefs and not _is_project(self._plan)
            for kind, snapshot in local.items():
                way = self._reached(host)
                if before and set(before.chiefs) - {host} and _holds(there[kind], self._project_there(way.base)):
                    raise EngineError(f"the {kind} is not laid out on {host}: {_AMONG_CODE}", hint=_AMONG_CODE_HINT)
                async with await self._open(way) as agent:
                    await lay_out(agent, snapshot, there[kind], exactly=was_chief)
        if host == chief:
            folders = {str(here): there[kind] for kind, here in self._folders_here().items()}
            chiefs = tuple(dict.fromkeys((*(before.chiefs if before else ()), chief)))
            self._note(Origin(chief, there["output"], folders, before.paths if before else {}, chiefs))

    def carried(self) -> ProjectCarried | None:
        """What came to hosts since this was asked last; None if they had it all."""
        found, self._carried = self._carried, []
        if not any(each.written for each in found):
            return None
        sent, size = max(each.sent_bytes for each in found), found[-1].size_bytes
        return ProjectCarried(found[-1].files, size, len(found), None if sent >= size else sent)

    async def _settle(self) -> Origin | None:
        """Fetch what the last chief has left, as far as its host answers; what is here then has to do."""
        origin = self._origin
        way = self._way(origin.host) if origin else None
        if origin and way and not origin.is_whole:
            with suppress(EngineError):
                await self.collect()
        return self._origin

    async def collect(self) -> None:
        """Fetch all that the chief has written, which has ended; raise EngineError if it cannot be."""
        for _ in range(_TRIES):
            if self._origin is None or self._origin.is_shared or self._origin.is_whole:
                return
            await self._fetch(self._reached(self._origin.host), settled=True)

    async def follow(self) -> None:
        """Fetch what the chief writes, again and again, until this is cancelled; say once why that is not possible."""
        warned = ""
        pause = min(FETCH_SECONDS, _SOON_SECONDS)
        while True:
            await asyncio.sleep(pause)
            began = time.monotonic()
            origin = self._origin
            way = self._way(origin.host) if origin else None
            if origin is None or way is None or origin.is_shared or origin.is_whole:
                continue
            try:
                await self._fetch(way, settled=False)
            except EngineError as error:
                if self._way(origin.host) and error.message != warned:  # else the host is gone, which others tell
                    warned = error.message
                    self._warn_seldom(f"the output is not fetched: {warned}")
            pause = max(min(FETCH_SECONDS, 2 * pause), FETCH_SHARE * (time.monotonic() - began))

    def _project_there(self, base: str) -> str:
        return f"{base}/runs/{self._hosts.unique}/project"

    def _look(self) -> Snapshot:
        return take(self._site.directory, without=own_folders(self._plan, self._site))

    def _reached(self, host: str) -> Way:
        way = self._way(host)
        if way is None:
            raise AwayError(f"{host} does not answer")
        return way

    def _folders_here(self) -> dict[str, Path]:
        return {} if self._hosts.shared else local_folders(self._plan, self._site.directory, self._run_dir)

    def _look_at_output(self) -> dict[str, Snapshot]:
        found = {kind: here for kind, here in self._folders_here().items() if here.is_dir() and any(here.iterdir())}
        return {kind: take(here, rules=False) for kind, here in found.items()}

    async def _open(self, way: Way) -> Agent:
        return await open_agent(way.shell, self._hosts, counts=True)

    async def _fetch(self, way: Way, *, settled: bool) -> None:
        """Fetch what is new, and note how far it is here."""
        async with self._fetching, await self._open(way) as agent:
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
                    self._tell_left_out(found.left_out)
                    is_whole &= found.is_whole
                    before = () if found.is_whole else paths.get(here, ())
                    if sum(map(len, before)) > _MOST_KNOWN_CHARS:  # these stay here even when they are gone there
                        before = ()
                    paths[here] = tuple(sorted(found.paths.union(before)))
            if self._origin is origin:  # else another attempt has begun
                self._note(origin.replace(paths=paths, fetched_at=time.time(), is_whole=is_whole and settled))

    def _tell_left_out(self, links: Sequence[str]) -> None:
        is_full = len(self._left_out) >= _MOST_LEFT_OUT
        if new := [each for each in links if not is_full and each not in self._left_out]:
            self._left_out.update(new[: _MOST_LEFT_OUT - len(self._left_out)])
            self._warn_seldom(f"the output is fetched, but {left_out_warning(new)}")

    def _warn_seldom(self, message: str) -> None:
        self._warnings += 1
        if self._warnings <= _MOST_WARNINGS:
            self._warn(clean_text(message))

    def _note(self, origin: Origin) -> None:
        self._origin = origin
        path = self._run_dir / ORIGIN
        try:
            write_file(path, origin.to_json().encode())
        except OSError as error:
            raise EngineError(f"{path} cannot be written: {error.strerror}") from None

    @property
    def _hosts(self) -> Hosts:
        return hosts_of(self._plan)


def read_origin(run_dir: Path) -> Origin | None:
    """What is noted of a run's output; None if nothing was written so far, as far as anybody knows."""
    with suppress(OSError):
        return origin_from_json((run_dir / ORIGIN).read_text())
    return None


def refuse_output_among_code(plan: Plan) -> None:
    """Raise InputError if hosts would be given what another host wrote in the folder of the project or above it.

    A host could then replace the code that runs on the others.
    """
    if hosts_of(plan).keeps_together:
        return
    project = "/base/runs/run/project"
    for kind, path in (("output", plan.output), ("checkpoint", plan.checkpoint)):
        if path and _holds(posixpath.join(project, path), project):
            raise InputError(f"{kind}: {path} cannot be used on several hosts: {_AMONG_CODE}", hint=_AMONG_CODE_HINT)


def remarks(plan: Plan, site: Site) -> Sequence[str]:
    """What of the project is not carried, and what makes it so large; raise InputError if it cannot be read."""
    tree = walk(site.directory, without=own_folders(plan, site))
    size = sum(entry.size_bytes for entry in tree.entries)
    if size < _LARGE_BYTES:
        return tree.remarks
    large = f"the project is {bulk(size)} for every host; {OWN} leaves out what they do not need. The largest are"
    return (*tree.remarks, f"{large}\n{list_largest(tree)}")


def local_folders(plan: Plan, directory: Path, run_dir: Path) -> dict[str, Path]:
    """Return where this machine has what is fetched: in the project as the spec says, else in the run's own folder.

    Hosts write what they like there, so it is never the project's own folder, and nothing outside of it.
    """
    named = fetched_folder(str(directory), plan.output)
    output = Path(named) if named else run_dir / "output"
    if plan.checkpoint is None:
        return {"output": output}
    named = fetched_folder(str(directory), plan.checkpoint)
    checkpoint = Path(named) if named else run_dir / "checkpoint"
    return {"output": output} if checkpoint.is_relative_to(output) else {"output": output, "checkpoint": checkpoint}


def _holds(folder: str, inner: str) -> bool:
    """Return whether one folder is the other, or lies above it."""
    folder, inner = posixpath.normpath(folder), posixpath.normpath(inner)
    return posixpath.commonpath((folder, inner)) == folder


def _folders(place: Place) -> dict[str, str]:
    return {"output": place.output_dir, "checkpoint": place.checkpoint_dir}


def _is_project(plan: Plan) -> bool:
    """Whether it writes among its own code."""
    return plan.output is not None and os.path.normpath(plan.output) == "."
