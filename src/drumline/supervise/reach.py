"""Reaching a run that goes on by itself: asking its supervisor, or giving it one again."""

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
from drumline.store.reach import ENDED, Reach, read_reach
from drumline.supervise.control import LookAround, read_answer, request_look, request_stop, wait_closed
from drumline.supervise.detach import start_supervisor

RETURN_SECONDS = 20.0  # that a supervisor may take to come back by itself
_MOMENT_SECONDS = 0.01
_LEAVING_SECONDS = 20.0  # that the last supervisor of a run may take after its end
_LOOK_SECONDS = 5.0  # that a follower may take before a command goes on with what is here
_PATIENCE = 5  # supervisors that may be lost before a run that is to end is given up


def read_state(folder: RunFolder) -> RunState:
    """Where a run stands by its journal."""
    plan = folder.plan()
    state = new_run(plan)
    for entry in read_journal(folder.journal_file, plan):
        state = fold(state, entry.event, *entry.decisions)
    return state


def bring_up_to_date(folder: RunFolder) -> Reach | None:
    """Have the copy of a run that is supervised elsewhere followed; return how its supervisor stands.

    Return None for a run that is over. What is here is then as new as it can be had: a supervisor that cannot be
    reached changes nothing. Raise EngineError if no follower can be started.
    """
    if connection := connect(folder.socket_file):
        with connection:
            request_look(connection, _LOOK_SECONDS)
    elif not is_locked(folder.lock_file) and not read_state(folder).phase.is_final:
        start_supervisor(folder, asked=LookAround())
    reach = read_reach(folder.path)
    if reach and reach.state == ENDED:
        wait_until_left(folder, _LOOK_SECONDS)  # the follower
    return None if read_state(folder).phase.is_final else reach


def stop_run(folder: RunFolder, *, force: bool) -> RunState:
    """End a run, whether or not it has a supervisor, and return when nothing of it is alive."""
    return wait_until_stopped(folder, ask_to_stop(folder, force=force), force=force)


def ask_to_stop(folder: RunFolder, *, force: bool) -> RunState:
    """Ask for the end of a run; return when its supervisor, perhaps a new one, knows, with where it stood before."""
    while not (before := read_state(folder)).phase.is_final:
        if connection := connect(folder.socket_file):
            with connection, suppress(OSError):  # it may leave at any moment
                request_stop(connection, force=force)
                if read_answer(connection):
                    return before
        elif is_locked(folder.lock_file):
            time.sleep(_MOMENT_SECONDS)  # it is just coming or going
        elif start_supervisor(folder, asked=StopRequested(force, now())):
            return before
    return before


def wait_until_stopped(folder: RunFolder, asked: RunState, *, force: bool) -> RunState:
    """Return when a run that was asked to stop is over, whatever happens to its supervisor meanwhile.

    `asked` is where it stood when it was asked. A run that was over, and was resumed by somebody since, goes on.
    """
    for _ in range(_PATIENCE):
        state = _wait(folder, resumes=asked.resumes)
        if state.phase.is_final or state.resumes > asked.resumes:
            return state
        ask_to_stop(folder, force=force)
    raise EngineError(
        f"run {folder.id} was stopped, but its end could not be written down", hint=f"see {folder.supervisor_log}"
    )


def resume_run(folder: RunFolder) -> RunState:
    """Go on with a run that is over; return where it stood before. Raise InputError, with what to do, if it cannot be.

    Its last supervisor may be about to leave, and somebody else may want the same at this moment.
    """
    deadline = time.monotonic() + _LEAVING_SECONDS
    while True:
        before = read_state(folder)
        if is_lost(folder, before):
            before = _see_lost(folder, before)
        check_resumable(folder, before)
        if start_supervisor(folder, asked=ResumeRequested()):
            return before
        if time.monotonic() > deadline:
            raise EngineError(f"somebody holds run {folder.id}, which is over", hint="try again in a moment")
        time.sleep(_MOMENT_SECONDS)


def is_lost(folder: RunFolder, state: RunState) -> bool:
    """Whether a run was under way when its machine was restarted, and nobody has looked after it since."""
    if state.phase not in (Phase.STARTING, Phase.RUNNING) or is_locked(folder.lock_file):
        return False
    return read_journal(folder.journal_file, folder.plan())[-1].boot != boot_id()


def _see_lost(folder: RunFolder, before: RunState) -> RunState:
    """Have it written down that nobody of a run is alive; return where it stands then, perhaps in its next attempt."""
    start_supervisor(folder)
    while not (state := read_state(folder)).phase.is_final and state.attempt == before.attempt:
        if not is_locked(folder.lock_file):
            break
        time.sleep(_MOMENT_SECONDS)
    return state


def check_resumable(folder: RunFolder, state: RunState) -> None:
    """Raise InputError, with what to do instead, if a run cannot be resumed."""
    if state.phase is Phase.FINISHED:
        raise InputError(
            f"run {folder.id} has finished: there is nothing to go on with", hint="`drumline train` starts another"
        )
    if not may_resume(state):
        gone = not is_locked(folder.lock_file)
        hint = "supervise {0}` looks after it again" if gone else "logs -f {0}` shows it"
        raise InputError(f"run {folder.id} goes on: {state.phase}", hint=f"`drumline {hint.format(folder.id)}")


def wait_for_end(folder: RunFolder) -> RunState:
    """Return when a run is over; raise EngineError if nobody looks after it."""
    while not (state := _wait(folder)).phase.is_final:
        deadline = time.monotonic() + RETURN_SECONDS
        while not is_locked(folder.lock_file):
            if time.monotonic() > deadline or not may_come_back(folder):
                raise supervisor_gone(folder)
            time.sleep(_MOMENT_SECONDS)
    return state


def may_come_back(folder: RunFolder) -> bool:
    """Whether a run without a supervisor has a keeper on this machine, and a return left for which it starts one."""
    try:
        returns = int(read_regular(folder.path / SUPERVISOR_RETURNS, 8))
    except (OSError, ValueError):
        returns = 0
    return returns < MOST_RETURNS and any(map(is_locked, folder.path.glob(f"attempts/*/*/{TRACE}")))


def _wait(folder: RunFolder, *, resumes: float = math.inf) -> RunState:
    """Wait until a run is over, or resumed oftener than this, or nobody looks after it; return where it stands then."""
    while not (state := read_state(folder)).phase.is_final and state.resumes <= resumes:
        if connection := connect(folder.socket_file):
            with connection:
                wait_closed(connection)
        elif is_locked(folder.lock_file):
            time.sleep(_MOMENT_SECONDS)
        else:
            return read_state(folder)  # it writes before it leaves
    return state


def wait_until_left(folder: RunFolder, seconds: float = math.inf) -> None:
    """Return when the supervisor of a run that is over has left, or after so long; it asks first if all is gone."""
    deadline = time.monotonic() + seconds
    while is_locked(folder.lock_file) and time.monotonic() < deadline:
        time.sleep(_MOMENT_SECONDS)


def supervisor_gone(folder: RunFolder) -> EngineError:
    """What to say of a run that nobody looks after."""
    return EngineError(
        f"the supervisor of run {folder.id} is gone; its replicas go on by themselves",
        hint=f"`drumline supervise {folder.id}` takes the run up again, `drumline kill {folder.id}` ends it",
    )
