"""Where the traces of a replica's life lie inside its run's folder: the same for every way to start one."""

from __future__ import annotations

from drumline.plan.types import ReplicaId

LOG = "log"  # its stdout and stderr, nothing in between
TRACE = "keeper"  # locked while its keeper lives
GROUP = "group"  # its cgroup, while that is there
REPORT = "report"  # how far it is, as its script said last
ERROR = "error"  # the exception that ended its script
MARKS = "marks"  # which byte of the log was written by when
MARK_FORMAT = "<dQ"  # of each: when (UTC, seconds; negative: not exactly), how many bytes there were by then
STEPS = "steps"  # which step was reached by when, of a script whose log names none
STEP_FORMAT = "<dqq"  # of each: when it was seen (UTC, seconds), the epoch and the step; -1 is not known
CURSOR = "cursor"  # how much of the log is here, of one that comes from elsewhere
ADDRESS = "address"  # where it is to be reached, of a helper that can be
STACKS = "stacks"  # what its threads were doing, when nobody got on
USAGE = "usage"  # what it used so far, where that has to be added up
PLACES = "places"  # beside the lives of an attempt: on which host each of them is
UNREACHED = "unreached"  # beside the journal: the hosts that could not be asked whether anything is left
METRICS = "metrics"  # what it used, sample by sample


def trace_dir(replica: ReplicaId, attempt: int, incarnation: int = 0) -> str:
    """The folder of one life of a replica, below the run's."""
    life = f"{replica}+{incarnation}" if incarnation else str(replica)
    return f"attempts/{attempt}/{life}"
