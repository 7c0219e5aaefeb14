"""Send requests to the supervisor of a run; a run without a supervisor gets a new one."""

from __future__ import annotations

import math
import time
from contextlib import suppress

from drumline.errors import EngineError, InputError
from drumline.run.event import ResumeRequested, StopRequested
from drumline.run.fold import fold, new_run
from drumline.run.resume import may_resume
from drumline.run.state import Phase, RunState
from drumline.run.traces import TRACE
from drumline.runtime.keeper import MOST_RETURNS, SUPERVISOR_RETURNS, boot_id, now
from drumline.runtime.lock import is_locked
from drumline.runtime.private import read_regular
from drumline.runtime.unix import connect
from drumline.store.folder import RunFolder
from drumline.store.journal import read_journal
from drumline.store.reachability import ENDED, Reachability, read_reachability
from drumline.supervise.control import RefreshCopy, read_answer, request_refresh, request_stop, wait_closed
from drumline.supervise.detach import start_supervisor

RETURN_SECONDS = 20.0  # a keeper starts the next supervisor within this time
_MOMENT_SECONDS = 0.01
_LEAVING_SECONDS = 20.0  # the supervisor exits within this time after the end of its run
_REFRESH_SECONDS = 5.0  # after this time a command continues with the present copy
_MOST_LOST = 5  # after so many supervisors that exited before the end of the run, a stop fails


def read_state(folder: RunFolder) -> RunState:
    """Return the state of a run according to its journal."""
    plan = folder.plan()
    state = new_run(plan)
    for entry in read_journal(folder.journal_file, plan):
        state = fold(state, entry.event, *entry.decisions)
    return state


def refresh_run(folder: RunFolder) -> Reachability | None:
    """Update the copy of a run with a remote supervisor; return the reachability of the supervisor.

    Return None for a run that is over. If the supervisor cannot be reached, the copy is not changed. Raise EngineError
    if no follower can be started.
    """
    if connection := connect(folder.socket_file):
        with connection:
            request_refresh(connection, _REFRESH_SECONDS)
    elif not is_locked(folder.lock_file) and not read_state(folder).phase.is_final:
        start_supervisor(folder, asked=RefreshCopy())
    reach = read_reachability(folder.path)
    if reach and reach.state == ENDED:
        wait_supervisor_exit(folder, _REFRESH_SECONDS)  # wait until the follower has exited
    return None if read_state(folder).phase.is_final else reach


def stop_run(folder: RunFolder, *, force: bool) -> RunState:
    """End a run, which may have no supervisor, and return its state when none of its processes is left."""
    return wait_until_stopped(folder, ask_to_stop(folder, force=force), force=force)


def ask_to_stop(folder: RunFolder, *, force: bool) -> RunState:
    """Send a stop request to the supervisor of a run, or to a new one; return the state before it was accepted."""
    while not (before := read_state(folder)).phase.is_final:
        if connection := connect(folder.socket_file):
            with connection, suppress(OSError):  # the supervisor may exit at any moment
                request_stop(connection, force=force)
                if read_answer(connection):
                    return before
        elif is_locked(folder.lock_file):
            time.sleep(_MOMENT_SECONDS)  # the supervisor is starting or exiting
        elif start_supervisor(folder, asked=StopRequested(force, now())):
            return before
    return before


def wait_until_stopped(folder: RunFolder, asked: RunState, *, force: bool) -> RunState:
    """Return the state of a run when it is over after a stop request; if its supervisor is lost, request it again.

    `asked` is the state when the stop was requested. If the run was resumed since then, return its present state. Raise
    EngineError after too many lost supervisors.
    """
    for _ in range(_MOST_LOST):
        state = _wait(folder, resumes=asked.resumes)
        if state.phase.is_final or state.resumes > asked.resumes:
            return state
        ask_to_stop(folder, force=force)
    raise EngineError(
        f"run {folder.id} was stopped, but its end could not be written down", hint=f"see {folder.supervisor_log}"
    )


def resume_run(folder: RunFolder) -> RunState:
    """Resume a run that is over; return its state before. Raise InputError with a hint if it cannot be resumed.

    Wait if its last supervisor is still exiting; raise EngineError if it does not exit in time.
    """
    deadline = time.monotonic() + _LEAVING_SECONDS
    while True:
        before = read_state(folder)
        if is_lost(folder, before):
            before = _record_lost(folder, before)
        check_resumable(folder, before)
        if start_supervisor(folder, asked=ResumeRequested()):
            return before
        if time.monotonic() > deadline:
            raise EngineError(f"another process holds run {folder.id}, which is over", hint="try again in a moment")
        time.sleep(_MOMENT_SECONDS)


def is_lost(folder: RunFolder, state: RunState) -> bool:
    """Return whether a run was active when its machine was restarted, and has had no supervisor since."""
    if state.phase not in (Phase.STARTING, Phase.RUNNING) or is_locked(folder.lock_file):
        return False
    return read_journal(folder.journal_file, folder.plan())[-1].boot != boot_id()


def _record_lost(folder: RunFolder, before: RunState) -> RunState:
    """Start a supervisor, which records that no process of the run is left; return the state after that."""
    start_supervisor(folder)
    while not (state := read_state(folder)).phase.is_final and state.attempt == before.attempt:
        if not is_locked(folder.lock_file):
            break
        time.sleep(_MOMENT_SECONDS)
    return state


def check_resumable(folder: RunFolder, state: RunState) -> None:
    """Raise InputError, with a hint for the user, if a run cannot be resumed."""
    if state.phase is Phase.FINISHED:
        raise InputError(
            f"run {folder.id} has finished: there is nothing to go on with", hint="`drumline train` starts another"
        )
    if not may_resume(state):
        gone = not is_locked(folder.lock_file)
        hint = "supervise {0}` looks after it again" if gone else "logs -f {0}` shows it"
        raise InputError(f"run {folder.id} goes on: {state.phase}", hint=f"`drumline {hint.format(folder.id)}")


def wait_for_end(folder: RunFolder) -> RunState:
    """Return the state of a run when it is over; raise EngineError if it has no supervisor and gets none."""
    while not (state := _wait(folder)).phase.is_final:
        deadline = time.monotonic() + RETURN_SECONDS
        while not is_locked(folder.lock_file):
            if time.monotonic() > deadline or not may_return_itself(folder):
                raise supervisor_gone(folder)
            time.sleep(_MOMENT_SECONDS)
    return state


def may_return_itself(folder: RunFolder) -> bool:
    """Return whether a run without a supervisor has a keeper on this machine that will start the next one."""
    try:
        returns = int(read_regular(folder.path / SUPERVISOR_RETURNS, 8))
    except (OSError, ValueError):
        returns = 0
    return returns < MOST_RETURNS and any(map(is_locked, folder.path.glob(f"attempts/*/*/{TRACE}")))


def _wait(folder: RunFolder, *, resumes: float = math.inf) -> RunState:
    """Wait until a run is over, was resumed more than `resumes` times, or has no supervisor; return its state."""
    while not (state := read_state(folder)).phase.is_final and state.resumes <= resumes:
        if connection := connect(folder.socket_file):
            with connection:
                wait_closed(connection)
        elif is_locked(folder.lock_file):
            time.sleep(_MOMENT_SECONDS)
        else:
            return read_state(folder)  # read again: the supervisor may have written entries before it exited
    return state


def wait_supervisor_exit(folder: RunFolder, seconds: float = math.inf) -> None:
    """Return when the supervisor of a run that is over has exited, or after the timeout."""
    deadline = time.monotonic() + seconds
    while is_locked(folder.lock_file) and time.monotonic() < deadline:
        time.sleep(_MOMENT_SECONDS)


def supervisor_gone(folder: RunFolder) -> EngineError:
    """Return the error for a run without a supervisor."""
    return EngineError(
        f"the supervisor of run {folder.id} is gone; its replicas go on by themselves",
        hint=f"`drumline supervise {folder.id}` takes the run up again, `drumline kill {folder.id}` ends it",
    )
