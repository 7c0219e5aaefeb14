"""Supervise one run: from taking its lock to the last line of its journal."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from drumline.engine.abilities import RemoteSupervisor
from drumline.engine.loop import BootClockLoop
from drumline.engine.protocol import Engine, Site
from drumline.engine.registry import import_session, open_engine
from drumline.plan.types import Plan
from drumline.run.entry import Entry
from drumline.run.event import ResumeRequested, StopRequested, SupervisorReturned
from drumline.run.fold import fold, new_run
from drumline.run.resume import may_resume, may_return
from drumline.runtime.child import start_python
from drumline.runtime.keeper import boot_id, now
from drumline.runtime.lock import release_lock, take_lock
from drumline.runtime.private import open_file
from drumline.store.folder import RunFolder
from drumline.store.home import check_run
from drumline.store.journal import Journal, read_journal
from drumline.store.migrate import migrate_run
from drumline.store.reserve import reserve_room
from drumline.supervise import facts
from drumline.supervise.control import ControlServer, RefreshCopy
from drumline.supervise.follower import Asked, Follower, find_remote
from drumline.supervise.periodic import PeriodicChecks
from drumline.supervise.site import site_of_run
from drumline.supervise.supervisor import Supervisor

# After the start, work that is not urgent is delayed by this time, so that the replicas can use all cores to start.
SETTLED_SECONDS = 1.0

# The reader of log tails is imported this long after the start of the replicas, so that a failure does not wait for it.
LOG_TAIL_SECONDS = 0.2

# The most bytes that the end of a run takes in its journal.
RESERVE_BYTES = 4096
RESERVE_BYTES_PER_REPLICA = 1024


import_session()


def supervise(
    path: Path,
    acknowledge: Callable[[str], object],
    *,
    asked: Asked = None,
) -> None:
    """Supervise a run to its end, from its start or from where its last supervisor stopped.

    If the run has a remote supervisor, follow it instead. `asked` is the request of the caller. `acknowledge` gets:

    * "ok": the run is supervised.
    * "busy": it has a supervisor already.
    * "refused": the request is refused, and the run is not changed. A resume is refused if the run cannot be resumed; a
      keeper's request is refused if the run is over or is being stopped.
    """
    folder = RunFolder(path)
    check_run(str(path))
    site = site_of_run(folder)
    _detach_output(folder)
    lock = take_lock(folder.lock_file)
    if lock is None:
        acknowledge("busy")
        return
    plan = folder.plan()
    engine = open_engine(plan.engine, site)
    remote = find_remote(folder, plan, engine)
    with asyncio.Runner(loop_factory=BootClockLoop) as runner:
        if remote is not None:
            runner.run(_follow(folder, plan, remote, site.directory, acknowledge, asked))
        elif isinstance(asked, RefreshCopy):
            acknowledge("refused")  # it is supervised on this machine
        else:
            runner.run(_supervise(folder, site, engine, acknowledge, asked))
    release_lock(lock)  # not called if the supervisor is killed: then a keeper starts the next one


async def _supervise(
    folder: RunFolder,
    site: Site,
    engine: Engine,
    acknowledge: Callable[[str], object],
    asked: StopRequested | ResumeRequested | SupervisorReturned | None,
) -> None:
    loop = asyncio.get_running_loop()
    migrate_run(folder)
    plan = folder.plan()
    journal = Journal(
        folder.journal_file,
        boot=boot_id(),
        wall=time.time,
        since_boot=now,
        reserve=reserve_room,
        reserve_bytes=RESERVE_BYTES + RESERVE_BYTES_PER_REPLICA * len(plan.replicas),
    )
    history = list(read_journal(folder.journal_file, plan))
    if _is_refused(asked, plan, history):
        acknowledge("refused")
        return
    async with engine.open(folder.path) as session:
        supervisor = Supervisor(plan, session, journal, history, loop, folder.path)
        control = ControlServer(folder.socket_file, loop, supervisor.take)
        returned = not (supervisor.is_new or isinstance(asked, ResumeRequested))
        dates_logs = engine.capabilities.dates_logs
        checks = PeriodicChecks(folder, session, supervisor, control, loop, returned=returned, dates_logs=dates_logs)
        _handle_signals(loop, supervisor)
        supervisor.begin(asked)
        acknowledge("ok")
        gc.freeze()  # collecting garbage in the present objects would copy memory pages that are shared with children

        def start_checks() -> None:
            checks.settled = True
            if supervisor.is_new:
                _record_revision(folder, site.directory)

        loop.call_later(LOG_TAIL_SECONDS, import_module, "drumline.supervise.log_tail")
        loop.call_later(SETTLED_SECONDS, start_checks)
        checks.check()
        await supervisor.run()
        await checks.close()
        await session.release(forced=supervisor.state.forced)  # first: another run may wait for the resources
        await checks.finish()
    supervisor.leave()
    control.close()
    journal.close()
    if supervisor.is_new and not checks.settled:
        facts.main(str(folder.path), str(site.directory))
    _record(folder)


async def _follow(
    folder: RunFolder,
    plan: Plan,
    remote: RemoteSupervisor,
    directory: Path,
    acknowledge: Callable[[str], object],
    asked: Asked,
) -> None:
    if asked is None:
        _record_revision(folder, directory)
    await Follower(folder, plan, remote).follow(acknowledge, asked)
    _record(folder)


def _is_refused(
    asked: StopRequested | ResumeRequested | SupervisorReturned | None, plan: Plan, history: Sequence[Entry]
) -> bool:
    """Return whether the request is refused: the run cannot be resumed, or is over, or was asked to stop."""
    if not isinstance(asked, ResumeRequested | SupervisorReturned):
        return False
    state = new_run(plan)
    for entry in history:
        state = fold(state, entry.event, *entry.decisions)
    if isinstance(asked, ResumeRequested):
        return not may_resume(state)
    return not may_return((each.event for each in history), state)


def _detach_output(folder: RunFolder) -> None:
    """Redirect output to the supervisor's log, and change to the folder `/`, so that no other folder is in use."""
    with suppress(OSError):
        log = open_file(folder.supervisor_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
    os.chdir("/")


def _record_revision(folder: RunFolder, directory: Path) -> None:
    """Record the revision in a child process, since git may take long; skipped if no process can be started."""
    with suppress(OSError):
        start_python(facts.__name__, str(folder.path), str(directory)).returncode = 0


def _record(folder: RunFolder) -> None:
    """Put the run into the index; last, since no command waits for it."""
    from drumline.store.summary import record_run  # noqa: PLC0415

    record_run(folder)


def _handle_signals(loop: asyncio.AbstractEventLoop, supervisor: Supervisor) -> None:
    """End the run in order on SIGTERM; ignore SIGHUP and SIGINT."""
    loop.add_signal_handler(signal.SIGTERM, lambda: supervisor.take(StopRequested(at_seconds=now(), preempted=True)))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
