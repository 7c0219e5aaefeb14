"""Describe and classify the exit of a process."""

from __future__ import annotations

from signal import Signals

from drumline.run.event import Exit

# TensorFlow's PreemptionCheckpointHandler exits with 42 after saving; elsewhere 42 has no meaning.
SAVED_CODE = 42

# Signals with which users, launchers and kernels end a process; a shell reports 128 plus the signal.
_FROM_OUTSIDE = (Signals.SIGHUP, Signals.SIGINT, Signals.SIGQUIT, Signals.SIGKILL, Signals.SIGTERM)
_CODES_FROM_OUTSIDE = tuple(128 + number for number in _FROM_OUTSIDE)
_CANNOT_EXECUTE = {126: "the command cannot be executed", 127: "the command was not found"}

# The failure class of each reason that an engine gives for an exit; such an exit is not the fault of the script.
_CLASS_OF_REASON = {
    "Evicted": "preempted",
    "Displaced": "preempted",
    "Deleted": "preempted",
    "NodeLost": "lost",
    "HostLost": "lost",
    "LeaseOver": "lost",
    "Rejected": "lost",
    "InitFailed": "lost",
    "OverLimit": "crash",
    "DeadlineExceeded": "time",
}


def describe_exit(exit_: Exit) -> str:
    """Return `exit code 1`, `killed by signal 11 (SEGV)` or `its end was not observed`."""
    if exit_.signal is not None:
        by = " by the kernel's out-of-memory killer" if exit_.signal == Signals.SIGKILL and exit_.out_of_memory else ""
        words = _describe_signal(exit_.signal) + by
    elif exit_.code is not None:
        meaning = _CANNOT_EXECUTE.get(exit_.code) or _describe_signal(exit_.code - 128, known=True)
        words = f"exit code {exit_.code}" + (f": {meaning}" if meaning else "")
    else:
        return exit_.message or "its end was not observed"
    return f"{words}; {exit_.message}" if exit_.message else words


def describe_end(exit_: Exit, exception: str) -> str:
    """Return the exit and the exception that ended the process: `exit code 1, ValueError: bad row`."""
    return f"{describe_exit(exit_)}, {exception}" if exception else describe_exit(exit_)


def failure_class(exit_: Exit, framework: str) -> str:
    """Return the failure class of an exit. Each class has its own restart budget."""
    if ran_out_of_memory(exit_):
        return "out_of_memory"
    if exit_.reason in _CLASS_OF_REASON:
        return _CLASS_OF_REASON[exit_.reason]
    if exit_.signal == Signals.SIGTERM or exit_.code == 128 + Signals.SIGTERM or _saved_and_exited(exit_, framework):
        return "preempted"
    return "crash" if exit_.seen else "lost"


def reason_of(exit_: Exit) -> str:
    """Return a machine-readable word for this exit."""
    if ran_out_of_memory(exit_):
        return "OutOfMemory"
    if exit_.reason:
        return exit_.reason
    if not exit_.seen:
        return "ExitUnknown"
    if exit_.signal is not None:
        return "Signalled"
    return "CannotExecute" if exit_.code in _CANNOT_EXECUTE else "Exited"


def lost_with_machine(exit_: Exit) -> bool:
    """Return whether the process ended because its machine is gone."""
    return exit_.reason in ("HostLost", "NodeLost")


def ran_out_of_memory(exit_: Exit) -> bool:
    """Return whether the process failed because memory ran out; false if only a child failed and it succeeded."""
    return exit_.out_of_memory and not exit_.ok


def failed_by_itself(exit_: Exit, framework: str = "tensorflow") -> bool:
    """Return whether the process failed by itself, and was not ended from outside."""
    if ran_out_of_memory(exit_):
        return True
    if exit_.reason:
        return False
    if exit_.signal is not None:
        return exit_.signal not in _FROM_OUTSIDE
    if _saved_and_exited(exit_, framework):
        return False
    return exit_.seen and not exit_.ok and exit_.code not in _CODES_FROM_OUTSIDE


def _saved_and_exited(exit_: Exit, framework: str) -> bool:
    """Return whether TensorFlow saved a checkpoint on request and exited with its special code."""
    return framework == "tensorflow" and exit_.code == SAVED_CODE


def _describe_signal(number: int, *, known: bool = False) -> str:
    """Return `killed by signal 9 (KILL)`; with `known`, return an empty text for a number that is no signal."""
    try:
        return f"killed by signal {number} ({Signals(number).name.removeprefix('SIG')})"
    except ValueError:
        return "" if known else f"killed by signal {number}"
