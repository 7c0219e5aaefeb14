"""Reaching a run that goes on by itself: asking its supervisor, or giving it one again."""

from __future__ import annotations

import time
from contextlib import suppress

from drumline.errors import EngineError
from drumline.run.event import StopRequested
from drumline.run.machine import fold
from drumline.run.state import RunState
from drumline.runtime.keeper import now
from drumline.runtime.lock import is_locked
from drumline.runtime.unix import connect
from drumline.store.folder import RunFolder
from drumline.store.journal import read_journal
from drumline.supervise.control import read_answer, request_stop, wait_closed
from drumline.supervise.detach import take_up

_MOMENT_SECONDS = 0.01
_PATIENCE = 5  # supervisors that may be lost before a run that is to end is given up


def read_state(folder: RunFolder) -> RunState:
    """Where a run stands by its journal."""
    return fold(folder.plan(), (record.event for record in read_journal(folder.journal_file)))


def stop_run(folder: RunFolder, *, force: bool) -> RunState:
    """End a run, whether or not it has a supervisor, and return when nothing of it is alive."""
    ask_to_stop(folder, force=force)
    return wait_until_stopped(folder, force=force)


def ask_to_stop(folder: RunFolder, *, force: bool) -> None:
    """Ask for the end of a run; return when its supervisor, perhaps a new one, knows."""
    while not read_state(folder).phase.is_final:
        if connection := connect(folder.socket_file):
            with connection, suppress(OSError):  # it may leave at any moment
                request_stop(connection, force=force)
                if read_answer(connection):
                    return
        elif is_locked(folder.lock_file):
            time.sleep(_MOMENT_SECONDS)  # it is just coming or going
        elif take_up(folder, asked=StopRequested(force, now())):
            return


def wait_until_stopped(folder: RunFolder, *, force: bool) -> RunState:
    """Return when a run that was asked to stop is over, whatever happens to its supervisor meanwhile."""
    for _ in range(_PATIENCE):
        state = _wait(folder)
        if state.phase.is_final:
            return state
        ask_to_stop(folder, force=force)
    raise EngineError(
        f"run {folder.id} was stopped, but its end could not be written down", hint=f"see {folder.supervisor_log}"
    )


def wait_for_end(folder: RunFolder) -> RunState:
    """Return when a run is over; raise EngineError if nobody looks after it."""
    state = _wait(folder)
    if not state.phase.is_final:
        raise supervisor_gone(folder)
    return state


def _wait(folder: RunFolder) -> RunState:
    """Wait until a run is over or nobody looks after it; return where it stands then."""
    while not (state := read_state(folder)).phase.is_final:
        if connection := connect(folder.socket_file):
            with connection:
                wait_closed(connection)
        elif is_locked(folder.lock_file):
            time.sleep(_MOMENT_SECONDS)
        else:
            return read_state(folder)  # it writes before it leaves
    return state


def supervisor_gone(folder: RunFolder) -> EngineError:
    """What to say of a run that nobody looks after."""
    return EngineError(
        f"the supervisor of run {folder.id} is gone; its replicas go on by themselves",
        hint=f"`drumline supervise {folder.id}` takes the run up again, `drumline kill {folder.id}` ends it",
    )
