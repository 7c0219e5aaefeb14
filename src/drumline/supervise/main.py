"""The life of a supervisor, from its lock to the last line of the journal."""

from __future__ import annotations

import os
import signal
import time

from drumline.engine.protocol import Site
from drumline.engine.registry import open_engine
from drumline.run.event import StopRequested
from drumline.runtime.keeper import now
from drumline.store.clock import boot_id
from drumline.store.folder import RunFolder
from drumline.store.journal import Journal, read_journal
from drumline.store.lock import take_lock
from drumline.supervise.control import ControlServer, parse_request
from drumline.supervise.detach import Acknowledge
from drumline.supervise.loop import EventLoop
from drumline.supervise.marks import Marker
from drumline.supervise.supervisor import Supervisor

TICK_SECONDS = 0.25


def supervise(folder: RunFolder, site: Site, acknowledge: Acknowledge) -> None:
    """Take a run up, from its start or from wherever its last supervisor left it, and see it to its end."""
    lock = take_lock(folder.lock_file)
    if lock is None:
        acknowledge("busy")
        return
    loop = EventLoop()
    plan = folder.plan()
    engine = open_engine(plan.engine, site)
    journal = Journal(folder.journal_file, boot=boot_id(), wall=time.time, since_boot=now)
    supervisor = Supervisor(plan, engine, journal, read_journal(folder.journal_file), loop)
    engine.watch(folder.path, loop, supervisor.take)
    _take_left_request(folder, supervisor)
    supervisor.begin()
    control = ControlServer(folder.socket_file, loop, supervisor.take)
    acknowledge("ok")
    _heed_signals(loop, supervisor)
    marker = Marker()

    def tick() -> None:
        marker.mark(engine.traces())
        loop.call_later(TICK_SECONDS, tick)

    tick()
    while supervisor.ending is None:
        loop.turn()
        supervisor.settle()
    marker.mark(engine.traces())
    control.close()
    journal.close()
    _record(folder)


def _record(folder: RunFolder) -> None:
    """Put the run into the index: last, and loaded only now, for it is of use to nobody who waits."""
    from drumline.store.summary import record_run  # noqa: PLC0415

    record_run(folder)


def _take_left_request(folder: RunFolder, supervisor: Supervisor) -> None:
    """Heed what was asked while no supervisor lived."""
    try:
        asked = parse_request(folder.request_file.read_bytes())
    except OSError:
        return
    if asked:
        supervisor.take(asked)
    folder.request_file.unlink(missing_ok=True)


def _heed_signals(loop: EventLoop, supervisor: Supervisor) -> None:
    """TERM ends the run in order; a terminal that goes away ends nothing."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGTERM, lambda *_: supervisor.take(StopRequested()))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    loop.on_readable(woken, lambda: os.read(woken, 4096))
