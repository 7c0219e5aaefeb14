"""When a run has succeeded, and whom it still needs until then."""

from __future__ import annotations

from drumline.plan.types import COMPUTING, Plan, ReplicaId
from drumline.run.state import Phase, RunState

_DECIDING_REPLICA = {"chief": ReplicaId("chief", 0), "worker-0": ReplicaId("worker", 0)}


def has_succeeded(plan: Plan, state: RunState) -> bool:
    """Whether everybody whose end decides is done; asked while nobody who counts has failed."""
    one = _DECIDING_REPLICA.get(plan.success)
    return state.replicas[one].phase is Phase.FINISHED if one else not state.left["worker"]


def deciding_replicas(plan: Plan) -> tuple[ReplicaId, ...]:
    """Whose exit code 0 makes the run a success."""
    one = _DECIDING_REPLICA.get(plan.success)
    return (one,) if one else tuple(replica.id for replica in plan.replicas_of("worker"))


def can_fail_run(replica: ReplicaId) -> bool:
    """Whether its failure is the run's; that of an evaluator or of TensorBoard is not."""
    return replica.role not in ("evaluator", "tensorboard")


def needed_until_end(replica: ReplicaId) -> bool:
    """Whether leaving with exit code 0 while the training goes on takes something from the others.

    A worker that is done before its peers is normal; a parameter server has nowhere to go.
    """
    return replica.role == "ps"


def may_linger(plan: Plan, role: str) -> bool:
    """Whether a role is given time to end by itself after the success.

    A ps never would, nor would a worker that serves the chief of a line with ps; an evaluator may still have a last
    checkpoint to look at where one replica decided for all.
    """
    if role == "worker" and plan.success == "chief":
        return not plan.replicas_of("ps")
    return role in COMPUTING or (role == "evaluator" and plan.success in _DECIDING_REPLICA)
