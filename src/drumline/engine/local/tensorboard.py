"""TensorBoard as a process of this machine: on loopback, at a port that stays the same for the whole run."""

from __future__ import annotations

import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from drumline.engine.local.environment import complete_environment
from drumline.engine.local.place import HOST, claim_extra_port
from drumline.engine.local.processes import Processes
from drumline.engine.protocol import ReportEvent
from drumline.plan.types import TENSORBOARD, Extended, Launch, LaunchValue, Place, Plan, Replica, Resources
from drumline.run.event import TensorBoardServed
from drumline.run.incarnation import Incarnation
from drumline.run.tensorboard import pythons
from drumline.run.traces import ADDRESS, TRACE
from drumline.runtime import tensorboard
from drumline.runtime.lock import is_locked
from drumline.runtime.private import make_folder, read_regular, write_file

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

_FIRST_PROBE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.1, 1.0
_ENV: Mapping[str, LaunchValue] = {
    "PYTHONUNBUFFERED": "1",
    "CUDA_VISIBLE_DEVICES": "",  # TensorFlow in its process would reserve memory of every GPU
    "TF_CPP_MIN_LOG_LEVEL": "2",
}


class Server:
    """The TensorBoard of one run; probes its port until it answers or has ended."""

    def __init__(
        self, run_dir: Path, running: Processes, loop: AbstractEventLoop, report: ReportEvent, incarnation: int = 0
    ) -> None:
        self._incarnation = Incarnation(TENSORBOARD, 0, incarnation)
        self._folder = run_dir / self._incarnation.folder
        self._running = running
        self._loop = loop
        self._report = report

    def resume(self) -> bool:
        """Watch a TensorBoard that was started before, even by an earlier supervisor; return False if there is none."""
        if not self._running.has_begun(self._incarnation):
            return False
        self._running.adopt([self._incarnation])
        with suppress(OSError, ValueError):  # it can be stopped without its address
            self._probe(int(read_regular(self._folder / ADDRESS, 256).rpartition(b":")[2]), _FIRST_PROBE_SECONDS)
        return True

    def start(self, plan: Plan, place: Place, root: Path, environ: Mapping[str, str]) -> None:
        """Start TensorBoard; report its address when it answers."""
        claim = claim_extra_port(plan)
        try:
            make_folder(self._folder)
            write_file(self._folder / ADDRESS, f"{HOST}:{claim.port}\n".encode())
            where = (place.output_dir, HOST, str(claim.port), str(self._folder), str(root))
            argv = (sys.executable, "-IS", tensorboard.__file__, *where, *pythons(plan), sys.executable)
            path = {"PATH": Extended(place.python_dir, ":", ("PATH",))} if place.python_dir else {}
            replica = Replica(TENSORBOARD, str(TENSORBOARD), argv, {}, Resources())
            launch = Launch(replica, 0, place, {**_ENV, **path}, self._incarnation.incarnation)
            self._running.start(
                [launch], partial(complete_environment, environ=environ), {TENSORBOARD: claim.descriptors}
            )
        finally:
            claim.close()
        self._probe(claim.port, _FIRST_PROBE_SECONDS)

    def _probe(self, port: int, pause: float) -> None:
        if _answers(port):
            self._report(TensorBoardServed(f"http://{HOST}:{port}/"))
        elif self._running.is_beginning(self._incarnation) or is_locked(self._folder / TRACE):
            later = min(pause * 1.2, _LONGEST_PAUSE_SECONDS)
            self._loop.call_later(pause, partial(self._probe, port, later))


def _answers(port: int) -> bool:
    """Return whether a process listens on this port; since drumline holds the port, it can only be TensorBoard."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(0.05)
        return probe.connect_ex((HOST, port)) == 0
