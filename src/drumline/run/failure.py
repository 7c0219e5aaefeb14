"""How a process ended, in words, and what class of failure that is."""

from __future__ import annotations

import signal

from drumline.run.event import Exit

PREEMPTED_CODES = (42, 143)  # 42: TensorFlow's PreemptionCheckpointHandler has saved and left
OUT_OF_MEMORY = "OutOfMemory"
EXIT_UNKNOWN = "ExitUnknown"

_CODES = {
    126: "the command cannot be executed",
    127: "the command was not found",
    130: "interrupted",
    137: "killed, as by signal 9",
    143: "terminated, as by signal 15",
}


def describe_exit(exit_: Exit) -> str:
    """`exit code 1`, `killed by signal 9 (KILL)`, `ended unseen`."""
    if exit_.signal is not None:
        words = f"killed by signal {exit_.signal} ({signal_name(exit_.signal)})"
    elif exit_.code is not None:
        words = f"exit code {exit_.code}"
        if exit_.code in _CODES:
            words += f": {_CODES[exit_.code]}"
    else:
        words = "ended unseen"
    return f"{words}; {exit_.message}" if exit_.message else words


def signal_name(number: int) -> str:
    """`KILL`, `SEGV`; the number where there is no name."""
    try:
        return signal.Signals(number).name.removeprefix("SIG")
    except ValueError:
        return str(number)


def failure_class(exit_: Exit) -> str:
    """The budget that this ending is charged to."""
    if exit_.signal == signal.SIGTERM or exit_.code in PREEMPTED_CODES:
        return "preempted"
    if exit_.code is None and exit_.signal is None:
        return "lost"
    return "crash"


def reason_of(exit_: Exit) -> str:
    """One machine-readable word for this ending."""
    if exit_.signal is not None:
        return "Signalled"
    if exit_.code is None:
        return EXIT_UNKNOWN
    if exit_.code in (126, 127):
        return "CannotExecute"
    return "Exited"
