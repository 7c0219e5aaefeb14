"""How a process ended, in words, and what class of failure that is."""

from __future__ import annotations

from signal import Signals

from drumline.run.event import Exit

# TensorFlow's PreemptionCheckpointHandler leaves with 42 when it has saved; from others 42 is a number like any.
SAVED_CODE = 42

# What people, launchers and kernels end a process with; a shell adds 128 for the process it ran.
_FROM_OUTSIDE = (Signals.SIGHUP, Signals.SIGINT, Signals.SIGQUIT, Signals.SIGKILL, Signals.SIGTERM)
_CODES_FROM_OUTSIDE = tuple(128 + number for number in _FROM_OUTSIDE)
_CANNOT_EXECUTE = {126: "the command cannot be executed", 127: "the command was not found"}

# What a cluster or a host does to a replica that did nothing wrong, or that took more than it may.
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
    """`exit code 1`, `exit code 137: killed by signal 9 (KILL)`, `killed by signal 11 (SEGV)`, `ended unseen`."""
    if exit_.signal is not None:
        by = " by the kernel's out-of-memory killer" if exit_.signal == Signals.SIGKILL and exit_.out_of_memory else ""
        words = _describe_signal(exit_.signal) + by
    elif exit_.code is not None:
        meaning = _CANNOT_EXECUTE.get(exit_.code) or _describe_signal(exit_.code - 128, known=True)
        words = f"exit code {exit_.code}" + (f": {meaning}" if meaning else "")
    else:
        return exit_.message or "ended unseen"
    return f"{words}; {exit_.message}" if exit_.message else words


def describe_end(exit_: Exit, said: str) -> str:
    """`exit code 1, ValueError: bad row`: how it ended, and the exception that ended it."""
    return f"{describe_exit(exit_)}, {said}" if said else describe_exit(exit_)


def failure_class(exit_: Exit, framework: str) -> str:
    """The budget that this ending is charged to."""
    if ran_out_of_memory(exit_):
        return "out_of_memory"
    if exit_.reason in _CLASS_OF_REASON:
        return _CLASS_OF_REASON[exit_.reason]
    if exit_.signal == Signals.SIGTERM or exit_.code == 128 + Signals.SIGTERM or _saved_and_exited(exit_, framework):
        return "preempted"
    return "crash" if exit_.seen else "lost"


def reason_of(exit_: Exit) -> str:
    """One machine-readable word for this ending."""
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
    """Whether the machine it was on is gone, and it did nothing itself."""
    return exit_.reason in ("HostLost", "NodeLost")


def ran_out_of_memory(exit_: Exit) -> bool:
    """Whether it failed for want of memory; whoever lost only a child to that and ended well did not."""
    return exit_.out_of_memory and not exit_.ok


def failed_by_itself(exit_: Exit, framework: str = "tensorflow") -> bool:
    """Whether it failed by itself: nothing from outside ended it."""
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
    """Whether it was asked to go and has left as TensorFlow does."""
    return framework == "tensorflow" and exit_.code == SAVED_CODE


def _describe_signal(number: int, *, known: bool = False) -> str:
    """`killed by signal 9 (KILL)`; nothing, if it has to be a known one and is not."""
    try:
        return f"killed by signal {number} ({Signals(number).name.removeprefix('SIG')})"
    except ValueError:
        return "" if known else f"killed by signal {number}"
