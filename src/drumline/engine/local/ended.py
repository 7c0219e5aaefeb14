"""What a life used that is over: what its keeper wrote down, and nothing more to measure."""

from __future__ import annotations

import os

from drumline.engine.incarnation import Named
from drumline.engine.local.trace import Trace
from drumline.run.usage import Usage


def ended_usage(which: Named, trace: Trace) -> Usage | None:
    """What it used up to its end; None if it never became a process."""
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
