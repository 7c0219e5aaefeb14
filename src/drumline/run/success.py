"""When a run has succeeded, and whom it still needs until then."""

from __future__ import annotations

from drumline.plan.types import Plan, ReplicaId
from drumline.run.state import Phase, RunState


def has_succeeded(plan: Plan, state: RunState) -> bool:
    """Whether everybody whose end decides has finished."""
    deciding = deciders(plan)
    return bool(deciding) and all(state.replicas[replica].phase is Phase.FINISHED for replica in deciding)


def deciders(plan: Plan) -> tuple[ReplicaId, ...]:
    """Whose exit code 0 makes the run a success."""
    match plan.success:
        case "chief":
            return tuple(replica.id for replica in plan.replicas_of("chief"))
        case "worker-0":
            return (ReplicaId("worker", 0),)
        case _:
            workers = tuple(replica.id for replica in plan.replicas_of("worker"))
            return workers or tuple(replica.id for replica in plan.replicas_of("chief"))


def counts(replica: ReplicaId) -> bool:
    """Whether its failure is the run's; an evaluator's is not."""
    return replica.role != "evaluator"


def left_early(replica: ReplicaId) -> bool:
    """Whether leaving with exit code 0 while the training goes on takes something from the others.

    A worker that is done before its peers is normal; a parameter server has nowhere to go.
    """
    return replica.role == "ps"


def may_linger(replica: ReplicaId) -> bool:
    """Whether it is given time to end by itself after the run has succeeded; a ps never would."""
    return replica.role != "ps"
