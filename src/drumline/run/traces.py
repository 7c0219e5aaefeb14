"""Names of the files of an incarnation in its run's folder, the same on every engine."""

from __future__ import annotations

from drumline.plan.types import ReplicaId

LOG = "log"  # stdout and stderr
TRACE = "keeper"  # the trace of the keeper, locked while the keeper runs
GROUP = "group"  # the path of the cgroup, while the cgroup exists
REPORT = "report"  # the last progress that the script reported
ERROR = "error"  # the exception that ended the script
MARKS = "marks"  # when each byte of the log was written
MARK_FORMAT = "<dQ"  # time (UTC, seconds; negative: not exact), size of the log at that time
STEPS = "steps"  # when each step was reached, if the log names no steps
STEP_FORMAT = "<dqq"  # time (UTC, seconds), epoch and step; -1 if not known
CURSOR = "cursor"  # how much of a remote log was copied
ADDRESS = "address"  # address of a helper that serves requests, such as TensorBoard
STACKS = "stacks"  # stacks of the threads, saved when the run hung or on request
USAGE = "usage"  # resources used so far, where the engine has to add up measurements
PLACES = "places"  # in an attempt's folder: the host of each replica
UNREACHED = "unreached"  # in the run's folder: hosts on which processes may be left
METRICS = "metrics"  # samples of the resources used


def trace_dir(replica: ReplicaId, attempt: int, incarnation: int = 0) -> str:
    """Return the folder of one incarnation, relative to the run's folder."""
    folder = f"{replica}+{incarnation}" if incarnation else str(replica)
    return f"attempts/{attempt}/{folder}"
