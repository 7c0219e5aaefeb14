"""One run on the toy: it gives orders to its agent, and reports the events that the agent has recorded."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drumline.engine.notes import End
from drumline.engine.protocol import ReportEvent
from drumline.engine.tracker import ReplicaTracker, Tracked
from drumline.plan.types import Extended, Launch, LaunchValue, Secret
from drumline.run.event import Exit
from drumline.run.incarnation import Incarnation
from drumline.runtime.lock import is_locked
from drumline_toy import agent

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

_LOOK_SECONDS = 0.02


class ToyRun:
    """Gives orders to the agent, and reads its events."""

    def __init__(self, run_dir: Path, loop: AbstractEventLoop, report: ReportEvent, nice: int) -> None:
        self._folder = run_dir / "toy"
        self._folder.mkdir(exist_ok=True)
        self._loop = loop
        self._nice = nice
        self._tracker = ReplicaTracker(run_dir, Tracked, loop, report)
        self._recorded: list[dict[str, Any]] = []
        self._offset = 0
        self._is_looking = False
        self._is_released = False
        self._agent = 0  # its process, if this supervisor began it

    def start(self, launches: Iterable[Launch]) -> None:
        """Order the start of replicas that were not started before."""
        self._order(
            {
                Incarnation(launch.replica.id, launch.attempt, launch.incarnation): {
                    "do": "start",
                    "argv": launch.replica.argv,
                    "env": {name: _written(value) for name, value in launch.env.items()},
                    "workdir": launch.place.workdir,
                    "nice": self._nice,
                }
                for launch in launches
            }
        )

    def stop(self, incarnations: Iterable[Incarnation], grace_seconds: float) -> None:
        """Order the stop of replicas."""
        self._order({each: {"do": "stop", "grace_seconds": grace_seconds} for each in incarnations})

    def _order(self, orders: Mapping[Incarnation, Mapping[str, Any]]) -> None:
        with self._tracker.in_order():
            for each in self._tracker.ask(orders):
                agent.append(self._folder / agent.ORDERS, {"folder": str(each.folder), **orders[each.id]})
            self._report()
        self._look_again()

    def _report(self) -> None:
        """Report all new events."""
        recorded, self._offset = agent.read_lines(self._folder / agent.EVENTS, self._offset)
        self._recorded += recorded
        ordered = {str(each.folder): each for each in self._tracker}
        for line in self._recorded:
            if found := ordered.get(line["folder"]):
                if line["event"] == "started":
                    self._tracker.start(found)
                else:
                    end = Exit(line.get("code"), line.get("signal"), line.get("message", ""))
                    self._tracker.end(found, End(end, line["at"], has_started=found.has_started))

    def _look_again(self) -> None:
        """Read events until all started replicas have ended."""
        if not self._is_looking and not self._is_released and any(not each.is_over for each in self._tracker):
            self._is_looking = True
            self._begin_agent()
            self._loop.call_later(_LOOK_SECONDS, self._look)

    def release(self) -> None:
        """Stop reading events."""
        self._is_released = True

    def traces(self) -> Iterator[Path]:
        """Yield the folders of replicas that run, and of those that have ended since the last call."""
        return (folder for folder in self._tracker.traces() if folder.is_dir())

    def _look(self) -> None:
        self._is_looking = False
        if not self._is_released:
            self._report()
            self._look_again()

    def _begin_agent(self) -> None:
        """Start an agent unless one runs; it exits when it has nothing to do."""
        if self._agent and os.waitpid(self._agent, os.WNOHANG) == (0, 0):
            return
        self._agent = 0
        if is_locked(self._folder / agent.LOCK):
            return  # started by an earlier supervisor
        argv = [sys.executable, "-IS", agent.__file__, str(self._folder)]
        log = (os.POSIX_SPAWN_OPEN, 2, str(self._folder / "log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        streams = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0), log, (os.POSIX_SPAWN_DUP2, 2, 1)]
        self._agent = os.posix_spawn(sys.executable, argv, os.environ, file_actions=streams, setsid=True)


def _written(value: LaunchValue) -> object:
    """Return the form of a variable in an order: for a secret, the name of the variable that has its value."""
    match value:
        case Secret():
            return {"secret": value.variable}
        case Extended():
            return {"text": value.text, "separator": value.separator, "variables": value.variables}
        case _:
            return str(value)
