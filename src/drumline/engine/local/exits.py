"""How a replica ended and what it used, from the trace that its keeper wrote."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from drumline.engine.local.trace import Trace, describe_out_of_memory
from drumline.run.event import Exit
from drumline.run.incarnation import Named
from drumline.run.usage import Usage
from drumline.runtime import keeper


def ended_usage(which: Named, trace: Trace) -> Usage | None:
    """Return the usage of a replica up to its end; None if it never became a process."""
    if trace.ticks is None:
        return None
    started = trace.ticks / os.sysconf("SC_CLK_TCK")
    return Usage(
        which.replica,
        which.attempt,
        which.incarnation,
        at_seconds=trace.at_seconds,
        started_seconds=started,
        cpu_seconds=trace.cpu_seconds,
    )


def explain_exit(trace: Trace, exit_: Exit, *, is_stopped: bool) -> Exit:
    """Return this exit; if the kernel killed the process because memory ran out, with a message that says so."""
    if exit_.signal != signal.SIGKILL or exit_.out_of_memory or is_stopped or trace.pid is None:
        return exit_
    from drumline.engine.local.kernel_log import out_of_memory_message  # noqa: PLC0415 - few replicas are killed

    words = out_of_memory_message(trace.pid, trace.at_seconds)
    return exit_.replace(message=words, out_of_memory=True) if words else exit_


def unrecorded_exit(trace: Trace, group: Path | None) -> Exit:
    """Return an exit that no keeper recorded; the replica's cgroup shows whether memory ran out."""
    gone = "its keeper is gone" if trace.keeper else "it was never started"
    words, starved = describe_out_of_memory(keeper.out_of_memory(str(group)) if group else {})
    return Exit(message=f"{gone}; {words}" if starved else gone, out_of_memory=starved)
