"""The life of a supervisor, from its lock to the last line of the journal."""

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
from drumline.engine.registry import get_ready, open_engine
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
from drumline.supervise.control import ControlServer, LookAround
from drumline.supervise.follower import Asked, Follower, find_remote
from drumline.supervise.rounds import Rounds
from drumline.supervise.site import site_of_run
from drumline.supervise.supervisor import Supervisor

# For so long replicas that come up have the cores for themselves: what nobody waits for can wait.
SETTLED_SECONDS = 1.0

# So soon after the replicas were started we load what reads why one fell: its line would wait for that.
LISTENING_SECONDS = 0.2

# What the end of a run takes in its journal at most.
RESERVE_BYTES = 4096
RESERVE_BYTES_PER_REPLICA = 1024


get_ready()


def supervise(
    path: Path,
    acknowledge: Callable[[str], object],
    *,
    asked: Asked = None,
) -> None:
    """Take a run up, from its start or from wherever its last supervisor left it, and see it to its end.

    Follow a run whose supervisor lives elsewhere instead.

    `asked` is what whoever calls this wants of it; nothing needs to be written for that. A run that cannot be resumed
    is left as it is, and so is one that is over or was asked to stop if a keeper asks for its return.
    """
    folder = RunFolder(path)
    check_run(str(path))
    site = site_of_run(folder)
    _settle_down(folder)
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
        elif isinstance(asked, LookAround):
            acknowledge("refused")  # the engine has it supervised here
        else:
            runner.run(_supervise(folder, site, engine, acknowledge, asked))
    release_lock(lock)  # of a supervisor that dies a keeper starts the next one


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
        rounds = Rounds(folder, session, supervisor, control, loop, returned=returned, dates_logs=dates_logs)
        _handle_signals(loop, supervisor)
        supervisor.begin(asked)
        acknowledge("ok")
        gc.freeze()  # all that was loaded stays; looking for garbage among it would copy every page that keepers share

        def settle_down() -> None:
            rounds.settled = True
            if supervisor.is_new:
                _note_revision_aside(folder, site.directory)

        loop.call_later(LISTENING_SECONDS, import_module, "drumline.supervise.hear")
        loop.call_later(SETTLED_SECONDS, settle_down)
        rounds.make()
        await supervisor.run()
        await rounds.close()
        await session.release(forced=supervisor.state.forced)  # first: another run may wait for it
        await rounds.finish()
    supervisor.leave()
    control.close()
    journal.close()
    if supervisor.is_new and not rounds.settled:
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
        _note_revision_aside(folder, directory)
    await Follower(folder, plan, remote).follow(acknowledge, asked)
    _record(folder)


def _is_refused(
    asked: StopRequested | ResumeRequested | SupervisorReturned | None, plan: Plan, history: Sequence[Entry]
) -> bool:
    """Whether what is asked cannot be: another process resumed the run, or it has finished or was asked to stop."""
    if not isinstance(asked, ResumeRequested | SupervisorReturned):
        return False
    state = new_run(plan)
    for entry in history:
        state = fold(state, entry.event, *entry.decisions)
    if isinstance(asked, ResumeRequested):
        return not may_resume(state)
    return not may_return((each.event for each in history), state)


def _settle_down(folder: RunFolder) -> None:
    """Say what there is to say in the run's folder, and stand in nobody's way."""
    with suppress(OSError):
        log = open_file(folder.supervisor_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
    os.chdir("/")


def _note_revision_aside(folder: RunFolder, directory: Path) -> None:
    """Have a child do it, since git may take its time; not at all where no process can be had."""
    with suppress(OSError):
        start_python(facts.__name__, str(folder.path), str(directory)).returncode = 0


def _record(folder: RunFolder) -> None:
    """Put the run into the index: last, and loaded only now, for it is of use to nobody who waits."""
    from drumline.store.summary import record_run  # noqa: PLC0415

    record_run(folder)


def _handle_signals(loop: asyncio.AbstractEventLoop, supervisor: Supervisor) -> None:
    """Have TERM end the run in order; a terminal that goes away ends nothing."""
    loop.add_signal_handler(signal.SIGTERM, lambda: supervisor.take(StopRequested(at_seconds=now(), preempted=True)))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
