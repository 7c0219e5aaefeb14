"""Decide whether a run has succeeded, and which replicas it needs until then."""

from __future__ import annotations

from drumline.plan.types import COMPUTING, Plan, ReplicaId
from drumline.run.state import Phase, RunState

_DECIDING_REPLICA = {"chief": ReplicaId("chief", 0), "worker-0": ReplicaId("worker", 0)}


def has_succeeded(plan: Plan, state: RunState) -> bool:
    """Return whether all deciding replicas have finished.

    Called only while no replica that can fail the run has failed.
    """
    one = _DECIDING_REPLICA.get(plan.success)
    return state.replicas[one].phase is Phase.FINISHED if one else not state.left["worker"]


def deciding_replicas(plan: Plan) -> tuple[ReplicaId, ...]:
    """Return the replicas that make the run a success by exiting with code 0."""
    one = _DECIDING_REPLICA.get(plan.success)
    return (one,) if one else tuple(replica.id for replica in plan.replicas_of("worker"))


def can_fail_run(replica: ReplicaId) -> bool:
    """Return whether a failure of this replica fails the run; a failure of an evaluator or of TensorBoard does not."""
    return replica.role not in ("evaluator", "tensorboard")


def needed_until_end(replica: ReplicaId) -> bool:
    """Return whether an exit with code 0 during the training is a failure: it is one for a ps, not for a worker."""
    return replica.role == "ps"


def may_linger(plan: Plan, role: str) -> bool:
    """Return whether the replicas of a role get time to end by themselves after the success.

    A ps never ends by itself, nor does a worker that serves the chief in a strategy with ps. An evaluator may still
    have to evaluate the last checkpoint if the success was decided by a single replica.
    """
    if role == "worker" and plan.success == "chief":
        return not plan.replicas_of("ps")
    return role in COMPUTING or (role == "evaluator" and plan.success in _DECIDING_REPLICA)
