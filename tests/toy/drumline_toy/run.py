"""One run on the toy: gives orders to its agent, and reports what that has recorded."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drumline.engine.protocol import Tell
from drumline.plan.types import Extended, Launch, LaunchValue, ReplicaId, Secret
from drumline.record import Record
from drumline.run.event import Exit, ReplicaExited, ReplicaStarted
from drumline.run.traces import trace_dir
from drumline.runtime.lock import is_locked
from drumline_toy import agent

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

_LOOK_SECONDS = 0.02


class Life(Record):
    """One incarnation of a replica."""

    replica: ReplicaId
    attempt: int
    incarnation: int


class ToyRun:
    """Knows which incarnations were ordered, and what of them was reported."""

    def __init__(self, run_dir: Path, loop: AbstractEventLoop, tell: Tell, nice: int) -> None:
        self._run_dir = run_dir
        self._folder = run_dir / "toy"
        self._folder.mkdir(exist_ok=True)
        self._loop = loop
        self._tell = tell
        self._nice = nice
        self._lives: dict[str, Life] = {}  # by folder: those that were named by an order
        self._recorded: list[dict[str, Any]] = []
        self._offset = 0
        self._told: set[tuple[str, str]] = set()
        self._looked: set[str] = set()  # at their last lines
        self._is_looking = False
        self._agent = 0  # its process, if this supervisor began it

    def start(self, launch: Launch) -> None:
        """Have a replica started, unless it was before."""
        life = Life(launch.replica.id, launch.attempt, launch.incarnation)
        self._order(
            life,
            do="start",
            argv=launch.replica.argv,
            env={name: _written(value) for name, value in launch.env.items()},
            workdir=launch.place.workdir,
            nice=self._nice,
        )

    def stop(self, life: Life, grace_seconds: float) -> None:
        """Have a replica stopped."""
        self._order(life, do="stop", grace_seconds=grace_seconds)

    def report(self) -> None:
        """Report what is recorded by now, and look again until all that was ordered has ended."""
        recorded, self._offset = agent.read_lines(self._folder / agent.EVENTS, self._offset)
        self._recorded += recorded
        for each in self._recorded:
            key = each["event"], each["folder"]
            life = self._lives.get(each["folder"])
            if life and key not in self._told:
                self._told.add(key)
                self._tell(_event(life, each))
        if not self._is_looking and self._unended():
            self._is_looking = True
            self._begin_agent()
            self._loop.call_later(_LOOK_SECONDS, self._look)

    def release(self) -> None:
        """Look no more."""
        self._lives.clear()

    def traces(self) -> Iterator[Path]:
        """Yield the folders of all that run, and of those that ended since the last call."""
        for folder in self._lives:
            if folder not in self._looked and Path(folder).is_dir():
                if ("ended", folder) in self._told:
                    self._looked.add(folder)
                yield Path(folder)

    def _look(self) -> None:
        self._is_looking = False
        self.report()

    def _unended(self) -> bool:
        return any(("ended", folder) not in self._told for folder in self._lives)

    def _order(self, life: Life, **order: Any) -> None:
        folder = str(self._run_dir / trace_dir(life.replica, life.attempt, life.incarnation))
        self._lives[folder] = life
        agent.append(self._folder / agent.ORDERS, {"folder": folder, **order})

    def _begin_agent(self) -> None:
        """Begin an agent, unless there is one; it leaves when it has nothing to do."""
        if self._agent and os.waitpid(self._agent, os.WNOHANG) == (0, 0):
            return
        self._agent = 0
        if is_locked(self._folder / agent.LOCK):
            return  # begun by an earlier supervisor
        argv = [sys.executable, "-IS", agent.__file__, str(self._folder)]
        log = (os.POSIX_SPAWN_OPEN, 2, str(self._folder / "log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        streams = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0), log, (os.POSIX_SPAWN_DUP2, 2, 1)]
        self._agent = os.posix_spawn(sys.executable, argv, os.environ, file_actions=streams, setsid=True)


def _written(value: LaunchValue) -> object:
    """Return a variable as an order has it: a secret by the name of the variable that it comes from."""
    match value:
        case Secret():
            return {"secret": value.variable}
        case Extended():
            return {"text": value.text, "separator": value.separator, "variables": value.variables}
        case _:
            return str(value)


def _event(life: Life, recorded: Mapping[str, Any]) -> ReplicaStarted | ReplicaExited:
    about = life.replica, life.attempt, life.incarnation
    if recorded["event"] == "started":
        return ReplicaStarted(*about)
    end = Exit(recorded.get("code"), recorded.get("signal"), recorded.get("message", ""))
    return ReplicaExited(*about, end, recorded["at"])
