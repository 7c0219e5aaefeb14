"""Verbs of an agent about the replicas of one run: it runs them with the local engine, and reports their events.

Keepers outlive the agent. After a broken connection, the next agent finds their replicas by the traces.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from drumline.engine.agent.cleanup import remove_unused_packages
from drumline.engine.agent.frames import DATA_BYTES
from drumline.engine.agent.launches import incarnation_from_text, incarnation_to_text, launch_from_data
from drumline.engine.agent.lock import take_over
from drumline.engine.agent.logs import LogFollower, Write
from drumline.engine.agent.probe import facts
from drumline.engine.local import LocalEngine
from drumline.engine.local.capacity import find_capacity
from drumline.engine.local.exits import ended_usage
from drumline.engine.local.fault_injector import LocalFaultInjector
from drumline.engine.local.port_owners import require_free_ports
from drumline.engine.local.trace import read_trace
from drumline.engine.protocol import Capacity, Site
from drumline.engine.tasks import Tasks
from drumline.plan.codec import plan_from_json, to_data
from drumline.plan.types import Plan, ReplicaId
from drumline.run.drill import Fault
from drumline.run.event import ReplicaExited
from drumline.run.incarnation import Incarnation
from drumline.run.traces import STACKS, TRACE
from drumline.runtime.lock import is_locked
from drumline.runtime.private import make_folder

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

_SESSION = re.compile(r"/session-[^/\n]*\.scope")  # of systemd
_FREE_BYTES = 1 << 16  # that a run needs on the disk
_POLL_SECONDS = 0.02
_USE_SECONDS = 3600.0  # between two updates of the package's time of use
_CLEANUP_SECONDS = 1.0  # after the start: before that, replicas that start need the CPUs


class Replicas:
    """The replicas of one run on this host; owns the local session, and the lock that allows one agent."""

    def __init__(self, loop: AbstractEventLoop, write: Write, is_busy: Callable[[], bool]) -> None:
        self._loop = loop
        self._tasks = Tasks(loop)
        self._write = write
        self._is_busy = is_busy
        self.lease: Path | None = None  # a file; its modification time is when the agent last received a request
        self.silence_seconds: float | None = None  # the agent exits when it has received nothing for so long
        self._ended: set[Incarnation] = set()
        self._sessions = AsyncExitStack()  # keeps the session of the run open until this process ends

    async def open(self, message: dict[str, Any]) -> dict[str, Any]:
        """Open this host's folder of the run and return the host's facts; kill an earlier agent that has the lock."""
        base = Path(message["folder"]).expanduser().absolute()
        self._run_dir = _own_folder(base, message)
        directory = base / "runs" / message["run"] / "project"
        own = base / "agents" / message["host"]  # of this host and all runs: hosts may share their home folders
        run_folders = (base / "runs", directory.parent, directory, self._run_dir.parent, self._run_dir)
        for folder in (base, *run_folders, own.parent, own):
            make_folder(folder)
        self.silence_seconds = message["lost"]
        self._lock = take_over(self._run_dir / "agent.lock")
        _require_space(self._run_dir)
        log = os.open(self._run_dir / "agent.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        lease = None
        if message["lease"] is not None:
            self.lease = self._run_dir / "lease"
            self.lease.touch(0o600)
            lease = str(self.lease), message["lease"]
        environ = dict(os.environ)
        runtime = os.path.expanduser(message["runtime"])  # noqa: PTH111
        environ["PYTHONPATH"] = ":".join(filter(None, (environ.get("PYTHONPATH"), runtime)))  # behind the user's own
        cores = len(os.sched_getaffinity(0))
        capacity = _allowed(find_capacity(cores, environ), message["allowed"])
        self._site = Site(directory, base, cores, _python_dir(own), capacity, cache=base / "cache", warm=own)
        self._follower = LogFollower(self._run_dir, self._loop, self._write, self._is_busy)
        engine = LocalEngine(self._site, environ, lease)
        self._session = await self._sessions.enter_async_context(engine.open(self._run_dir))
        self._tasks.begin(self._read_events())
        self._loop.call_later(_CLEANUP_SECONDS, lambda: remove_unused_packages(Path(runtime).parents[1]))
        self._use(Path(runtime).parent)
        return facts(message)

    async def _read_events(self) -> None:
        async for event in self._session.events():
            if isinstance(event, ReplicaExited):
                self._follower.send_event(event, usage=self._usage_of(Incarnation.of(event)))
            else:
                self._follower.send_event(event)

    def _use(self, package: Path) -> None:
        """Update the time of use of this package at intervals: agents on other hosts do not see its lock."""
        with suppress(OSError):
            os.utime(package)
        self._loop.call_later(_USE_SECONDS, lambda: self._use(package))

    async def place(self, message: dict[str, Any]) -> dict[str, Any]:
        """Claim the resources of these replicas, and return the place of each."""
        plan = _fit_session(plan_from_json(message["plan"]))
        (self._site.directory / plan.workdir).mkdir(parents=True, exist_ok=True)
        placed = await self._session.place(plan, attempt=message["attempt"])
        require_free_ports(plan, str(self._run_dir))
        return {
            "places": {str(replica): to_data(place) for replica, place in placed.places.items()},
            "warnings": list(placed.warnings),
        }

    async def start(self, message: dict[str, Any]) -> dict[str, Any]:
        """Start replicas that were not started before, and send their logs from these offsets on."""
        self._follow(message["offsets"])
        await self._session.start([launch_from_data(each) for each in message["launches"]])
        await self._session.reported()
        return {}

    async def stop(self, message: dict[str, Any]) -> dict[str, Any]:
        """Stop replicas; each end is sent as an event."""
        self._follow(message["offsets"])
        await self._session.stop(_incarnations(message), grace_seconds=message["grace"])
        await self._session.reported()
        return {}

    async def prepare(self, message: dict[str, Any]) -> dict[str, Any]:
        """Start a helper that builds an environment or fetches data."""
        self._follow(message["offsets"])
        plan = plan_from_json(message["plan"])
        await self._session.prepare(plan, ReplicaId.parse(message["helper"]), incarnation=message["incarnation"])
        await self._session.reported()
        return {}

    async def usage(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return the usage of each running replica."""
        found = await self._session.usage(watched=message["watched"])
        running = [each for each in found if Incarnation.of(each) not in self._ended]
        return {"usage": [to_data(each) for each in running]}

    async def work_samples(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return the work that each replica has done so far."""
        del message
        return {"work_samples": [to_data(each) for each in await self._session.work_samples()]}

    async def sockets(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return the ports on which each replica listens, and the addresses of its connections."""
        del message
        found = await self._session.sockets()
        return {
            "sockets": [
                {"replica": str(each.replica), "listening": [*each.listening], "connected": [*each.connected]}
                for each in found
            ]
        }

    async def stacks(self, message: dict[str, Any]) -> None:
        """Save the stacks of replicas, send them, and answer when that is done."""
        self._tasks.begin(self._save_stacks(_incarnations(message), message))

    async def _save_stacks(self, incarnations: Sequence[Incarnation], message: dict[str, Any]) -> None:
        await self._session.stacks(incarnations, gently=message["gently"])
        for incarnation in incarnations:
            with suppress(OSError), (self._run_dir / incarnation.folder / STACKS).open("rb") as file:
                data = file.read(DATA_BYTES)
                self._write({"do": "file", "incarnation": incarnation_to_text(incarnation), "name": STACKS}, data)
        self._write({"do": "answer", "id": message["id"]}, b"")

    async def close(self, message: dict[str, Any]) -> None:
        """Release the claims for replicas that were not started."""
        del message
        await self._session.start([])

    async def clear(self, message: dict[str, Any]) -> None:
        """Kill all replicas of the run, of any attempt, except those in `keep`; answer when they have ended."""
        keep = {incarnation_from_text(each) for each in message["keep"]}
        left = [incarnation for incarnation in self._left() if incarnation not in keep]
        await self._session.stop(left, grace_seconds=0)
        self._tasks.begin(self._when_gone(left, message))

    async def release(self, message: dict[str, Any]) -> None:
        """Kill all replicas of the run, release everything, and answer when they have ended."""
        await self.clear({**message, "keep": ()})

    async def _when_gone(self, incarnations: Sequence[Incarnation], message: dict[str, Any]) -> None:
        """Answer when the keepers of these incarnations have ended; later incarnations are not waited for."""
        while any(is_locked(self._run_dir / incarnation.folder / TRACE) for incarnation in incarnations):
            await asyncio.sleep(_POLL_SECONDS)
        if message["do"] == "release":
            await self._session.release()
        self._write({"do": "answer", "id": message["id"]}, b"")

    def _left(self) -> Iterator[Incarnation]:
        """Yield every incarnation of the run that has a running keeper."""
        for trace in self._run_dir.glob(f"attempts/*/*/{TRACE}"):
            if is_locked(trace):
                replica, _, incarnation = trace.parent.name.partition("+")
                attempt = int(trace.parent.parent.name)
                yield Incarnation(ReplicaId.parse(replica), attempt, int(incarnation or 0))

    def _follow(self, offsets: Mapping[str, int]) -> None:
        for text, offset in offsets.items():
            self._follower.follow(incarnation_from_text(text), offset)

    def _usage_of(self, incarnation: Incarnation) -> dict[str, Any] | None:
        """Return the usage of an incarnation that has just ended; it is not measured again."""
        self._ended.add(incarnation)
        usage = ended_usage(incarnation, read_trace(self._run_dir / incarnation.folder / TRACE))
        return cast("dict[str, Any]", to_data(usage)) if usage else None


def inject_fault(message: Mapping[str, Any]) -> dict[str, Any]:
    """Inject a fault into a replica, or undo it; the run's folder need not be open."""
    run_dir = _own_folder(Path(message["folder"]).expanduser().absolute(), message)
    fault_injector = LocalFaultInjector()
    act = fault_injector.undo if message["undo"] else fault_injector.inject
    incarnation = incarnation_from_text(message["incarnation"])
    act(run_dir / incarnation.folder, incarnation.replica, Fault(message["fault"]))
    return {}


def _incarnations(message: Mapping[str, Any]) -> Sequence[Incarnation]:
    return [incarnation_from_text(each) for each in message["incarnations"]]


def _require_space(folder: Path) -> None:
    """Raise OSError if a folder cannot be written: the run is then started without this host."""
    path = folder / "room"
    try:
        path.write_bytes(bytes(_FREE_BYTES))
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(folder)) from None
    finally:
        path.unlink(missing_ok=True)


def _fit_session(plan: Plan, cgroup: Path = Path("/proc/self/cgroup")) -> Plan:
    """Return the plan without warm processes that outlive the run, if systemd gives each connection its own session.

    Other runs could not use these processes, and systemd may kill the processes of a session that has ended.
    """
    with suppress(OSError):
        if plan.warm and _SESSION.search(cgroup.read_text()):
            return plan.replace(warm=plan.warm.replace(keep_seconds=0.0))
    return plan


def _allowed(found: Capacity, allowed: Mapping[str, Any]) -> Capacity:
    """Return the capacity that may be used: the found one, within the limits of the spec."""
    known = {name: value for name, value in allowed.items() if value is not None}
    return found.replace(**{**known, "gpus": found.gpus[: known.get("gpus")]})


def _python_dir(folder: Path) -> str | None:
    """Return a folder in which `python` is this Python, created if needed; None if PATH has it already."""
    own = Path(sys.executable).parent
    usual = next((each for each in os.get_exec_path() if os.access(f"{each}/python", os.X_OK)), None)
    if usual == str(own):
        return None
    if os.access(own / "python", os.X_OK):
        return str(own)
    # For systems that have only `python3`. It is a script, since a link would not find its environment. All runs use
    # the same folder, and so have the same PATH.
    content = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n'
    script = folder / f"python-{sha256(content.encode()).hexdigest()[:8]}" / "python"
    if not script.exists():
        script.parent.mkdir(exist_ok=True, mode=0o700)
        unfinished = script.with_name(f"python.{os.getpid()}")
        unfinished.write_text(content)
        unfinished.chmod(0o700)
        unfinished.rename(script)
    return str(script.parent)


def _own_folder(base: Path, message: Mapping[str, str]) -> Path:
    """Return this host's own folder of a run: hosts may share their home folders."""
    return base / "runs" / message["run"] / "agents" / message["host"]
