"""What a run takes along to its hosts, and what it brings back: the project, and the output of its chief.

Where the hosts have no folder in common, OUTPUT_DIR is one of each host. The chief's is fetched while it writes, and
when it has ended; before the next attempt it is laid out on every host of that, since workers read checkpoints too.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

from drumline.engine.project.carry import Carried, Shell, carry, lay_out
from drumline.engine.project.fetch import fetch
from drumline.engine.project.own import own_folders
from drumline.engine.project.size import list_largest
from drumline.engine.project.snapshot import Snapshot, take
from drumline.engine.project.tree import OWN, walk
from drumline.engine.protocol import Site
from drumline.errors import EngineError, NotFoundError
from drumline.plan.hosts import Hosts
from drumline.plan.types import Place, Plan
from drumline.run.event import ProjectCarried
from drumline.run.origin import ORIGIN, Origin, origin_from_json
from drumline.words import bulk

T = TypeVar("T")

FOLDER = "~/.local/share/drumline"  # of all runs on a host, unless the spec names another
FETCH_SECONDS = 15.0  # between two looks at what the chief has written
_LARGE_BYTES = 1 << 30
_TRIES = 3  # for an output that should be at rest and is not


class Way(NamedTuple):
    """The way to a host, and the folder of all runs there."""

    shell: Shell
    base: str


class Luggage:
    """What one run takes along and brings back; lives in the courier's thread."""

    def __init__(self, plan: Plan, site: Site, run_dir: Path) -> None:
        self._plan = plan
        self._site = site
        self._run_dir = run_dir
        self._origin = read_origin(run_dir)
        self._fetching = asyncio.Lock()

    async def deliver(self, ways: Mapping[str, Way]) -> ProjectCarried | None:
        """Have the project on these hosts as it is here; None if it was. Raise EngineError if one has no room."""
        snapshot = await asyncio.to_thread(self._snapshot)
        found = await _all([self._deliver(snapshot, way) for way in ways.values()])
        if not any(each.written for each in found):
            return None
        sent = max(each.sent_bytes for each in found)
        known = None if sent >= snapshot.size_bytes else sent
        return ProjectCarried(snapshot.files, snapshot.size_bytes, len(found), known)

    async def begin(self, chief: str, places: Mapping[str, Place], ways: Mapping[str, Way]) -> None:
        """Before an attempt with its chief on this host: have what was written so far on every host of it.

        `places` has one place of each host of the attempt, `ways` all hosts that can be reached.
        """
        before = self._origin
        if before and not before.is_whole and before.host in ways:
            with suppress(EngineError):  # what is here then has to do
                await self.collect(ways[before.host].shell)
            before = self._origin
        local = {} if self._hosts.shared else local_folders(self._plan, self._site.directory, self._run_dir)
        chiefs = before.chiefs if before else ()
        await _all(
            [
                self._lay_out(ways[host].shell, here, _folders(place)[kind], exactly=host in chiefs)
                for host, place in places.items()
                if before is None or host != before.host  # who wrote it has it
                for kind, here in local.items()
            ]
        )
        there = _folders(places[chief])
        folders = {str(here): there[kind] for kind, here in local.items()}
        paths = before.paths if before else {}
        self._note(Origin(chief, there["output"], folders, paths, tuple(dict.fromkeys((*chiefs, chief)))))

    async def collect(self, shell: Shell) -> None:
        """Fetch all that the chief has written, which has ended; raise EngineError if it cannot be."""
        for _ in range(_TRIES):
            if await self._fetch(shell, settled=True):
                return

    async def follow(self, way: Callable[[str], Shell | None], warn: Callable[[str], object]) -> None:
        """Fetch what the chief writes, again and again, until this is cancelled; say once why that is not possible."""
        warned = ""
        pause = FETCH_SECONDS
        while True:
            await asyncio.sleep(pause)
            began = time.monotonic()
            shell = way(self._origin.host) if self._origin else None
            if shell is None or self._origin is None or self._origin.is_shared or self._origin.is_whole:
                continue
            try:
                await self._fetch(shell, settled=False)
            except EngineError as error:
                if way(self._origin.host) and error.message != warned:  # else its host is gone, which others tell
                    warned = error.message
                    warn(f"the output is not fetched: {warned}")
            pause = max(FETCH_SECONDS, 4 * (time.monotonic() - began))

    def _snapshot(self) -> Snapshot:
        return take(self._site.directory, without=own_folders(self._plan, self._site))

    async def _deliver(self, snapshot: Snapshot, way: Way) -> Carried:
        folder = f"{way.base}/runs/{self._hosts.unique}/project"
        return await carry(way.shell, snapshot, folder, store=f"{way.base}/blobs", python=self._hosts.python)

    async def _lay_out(self, shell: Shell, here: Path, there: str, *, exactly: bool) -> None:
        if not here.is_dir() or not any(here.iterdir()):
            return
        snapshot = await asyncio.to_thread(take, here, rules=False)
        exactly = exactly and not _is_project(self._plan)
        await lay_out(shell, snapshot, there, python=self._hosts.python, exactly=exactly)

    async def _fetch(self, shell: Shell, *, settled: bool) -> bool:
        """Fetch what is new; whether all is here."""
        async with self._fetching:
            origin = self._origin
            if origin is None or origin.is_shared:
                return True
            is_whole, paths = True, dict(origin.paths)
            for here, there in origin.folders.items():
                with suppress(NotFoundError):  # nothing was written so far
                    found = await fetch(
                        shell,
                        there,
                        Path(here),
                        python=self._hosts.python,
                        settled=settled,
                        known=paths.get(here, ()),
                    )
                    is_whole &= found.is_whole
                    kept = found.paths if found.is_whole else found.paths.union(paths.get(here, ()))
                    paths[here] = tuple(sorted(kept))
            if self._origin is origin:  # else another attempt has begun
                self._note(origin._replace(paths=paths, fetched_at=time.time(), is_whole=is_whole and settled))
            return is_whole

    def _note(self, origin: Origin) -> None:
        self._origin = origin
        scratch = self._run_dir / f"{ORIGIN}.new"
        try:
            scratch.write_text(origin.to_json())
            scratch.replace(self._run_dir / ORIGIN)
        except OSError as error:
            raise EngineError(f"{scratch} cannot be written: {error.strerror}") from None

    @property
    def _hosts(self) -> Hosts:
        if self._plan.hosts is None:
            raise AssertionError("only a run on hosts takes something along")
        return self._plan.hosts


def read_origin(run_dir: Path) -> Origin | None:
    """What is noted of a run's output; None if nothing was written so far, as far as anybody knows."""
    with suppress(OSError):
        return origin_from_json((run_dir / ORIGIN).read_text())
    return None


def remarks(plan: Plan, site: Site) -> Sequence[str]:
    """What of the project is not carried, and what makes it so large; raise InputError if it cannot be read."""
    tree = walk(site.directory, without=own_folders(plan, site))
    size = sum(entry.size_bytes for entry in tree.entries)
    if size < _LARGE_BYTES:
        return tree.remarks
    large = f"the project is {bulk(size)} for every host; {OWN} leaves out what they do not need. The largest are"
    return (*tree.remarks, f"{large}\n{list_largest(tree)}")


def local_folders(plan: Plan, directory: Path, run_dir: Path) -> dict[str, Path]:
    """Where this machine has what is fetched: as if the run were here, but nothing outside of its two folders."""
    output = run_dir / "output"
    if plan.output and not os.path.isabs(plan.output) and not _is_project(plan):  # noqa: PTH117
        output = Path(os.path.normpath(directory / plan.output))
    if plan.checkpoint is None:
        return {"output": output}
    checkpoint = run_dir / "checkpoint"
    if not os.path.isabs(plan.checkpoint):  # noqa: PTH117
        checkpoint = Path(os.path.normpath(directory / plan.checkpoint))
    return {"output": output} if checkpoint.is_relative_to(output) else {"output": output, "checkpoint": checkpoint}


def _folders(place: Place) -> dict[str, str]:
    return {"output": place.output_dir, "checkpoint": place.checkpoint_dir}


def _is_project(plan: Plan) -> bool:
    """Whether it writes among its own code."""
    return plan.output is not None and os.path.normpath(plan.output) == "."


async def _all(errands: Sequence[Awaitable[T]]) -> list[T]:
    """What came of these, all at once; raise what went wrong first, when all are over."""
    found = await asyncio.gather(*errands, return_exceptions=True)
    for each in found:
        if isinstance(each, BaseException):
            raise each
    return [each for each in found if not isinstance(each, BaseException)]
