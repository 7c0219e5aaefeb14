"""Reaching a run that goes on by itself: asking its supervisor, or giving it one again."""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial

from drumline.engine.protocol import Site
from drumline.errors import EngineError
from drumline.run.event import StopRequested
from drumline.run.machine import fold
from drumline.run.state import RunState
from drumline.store.folder import RunFolder
from drumline.store.journal import read_journal
from drumline.store.lock import is_locked
from drumline.supervise.control import connect, request_stop, wait_closed
from drumline.supervise.detach import detach
from drumline.supervise.main import supervise

_MOMENT_SECONDS = 0.01


def read_state(folder: RunFolder) -> RunState:
    """Where a run stands by its journal."""
    return fold(folder.plan(), (record.event for record in read_journal(folder.journal_file)))


def stop_run(folder: RunFolder, site: Site, *, force: bool) -> RunState:
    """End a run, whether or not it has a supervisor, and return when nothing of it is alive."""
    while not (state := read_state(folder)).phase.is_final:
        connection = connect(folder.socket_file)
        if connection is not None:
            with connection, suppress(OSError):  # it may leave at any moment
                request_stop(connection, force=force)
                wait_closed(connection)
        elif is_locked(folder.lock_file):
            time.sleep(_MOMENT_SECONDS)  # it is just coming or going
        else:
            take_up(folder, site, asked=StopRequested(force=force))
    return state


def wait_for_end(folder: RunFolder) -> RunState:
    """Return when a run is over; raise EngineError if nobody looks after it."""
    while not (state := read_state(folder)).phase.is_final:
        connection = connect(folder.socket_file)
        if connection is not None:
            with connection:
                wait_closed(connection)
        elif is_locked(folder.lock_file):
            time.sleep(_MOMENT_SECONDS)
        else:
            raise supervisor_gone(folder)
    return state


def take_up(folder: RunFolder, site: Site, *, asked: StopRequested | None = None) -> None:
    """Give a run a supervisor, new or again, and tell it what is asked; one that has one keeps it."""
    word = detach(folder.supervisor_log, partial(supervise, folder, site, asked=asked))
    if word not in ("ok", "busy"):
        raise EngineError(
            f"the supervisor of run {folder.id} could not start: {word or 'it was killed'}",
            hint=f"see {folder.supervisor_log}; `drumline supervise {folder.id}` tries again,"
            f" `drumline kill {folder.id}` ends what runs",
        )


def supervisor_gone(folder: RunFolder) -> EngineError:
    """What to say of a run that nobody looks after."""
    return EngineError(
        f"the supervisor of run {folder.id} is gone; its replicas go on by themselves",
        hint=f"`drumline supervise {folder.id}` takes the run up again, `drumline kill {folder.id}` ends it",
    )
