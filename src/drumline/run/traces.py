"""Names of the files of an incarnation in its run's folder, the same on every engine."""

from __future__ import annotations

from drumline.plan.types import ReplicaId

LOG = "log"  # stdout and stderr
TRACE = "keeper"  # locked while its keeper runs
GROUP = "group"  # its cgroup, while it exists
REPORT = "report"  # progress, as its script reported last
ERROR = "error"  # the exception that ended its script
MARKS = "marks"  # when each byte of the log was written
MARK_FORMAT = "<dQ"  # time (UTC, seconds; negative: not exact), size of the log at that time
STEPS = "steps"  # when each step was reached, if the log names none
STEP_FORMAT = "<dqq"  # time (UTC, seconds), epoch and step; -1 is not known
CURSOR = "cursor"  # how much of a remote log was copied
ADDRESS = "address"  # address of a helper that serves
STACKS = "stacks"  # stacks of its threads, saved when the run hung or on request
USAGE = "usage"  # what it used so far, where that has to be summed up
PLACES = "places"  # in an attempt's folder: the host of each replica
UNREACHED = "unreached"  # in the run's folder: hosts on which processes may be left
METRICS = "metrics"  # samples of what it used


def trace_dir(replica: ReplicaId, attempt: int, incarnation: int = 0) -> str:
    """Return the folder of one incarnation, relative to the run's folder."""
    folder = f"{replica}+{incarnation}" if incarnation else str(replica)
    return f"attempts/{attempt}/{folder}"
