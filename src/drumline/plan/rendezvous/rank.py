"""The rank of each replica: the chief is 0, then come the workers; parameter servers and evaluators have no rank."""

from __future__ import annotations

from drumline.plan.types import COMPUTING, Place, Placement, Plan, ReplicaId


def ranks(plan: Plan) -> dict[ReplicaId, int]:
    """Return the rank of each chief and worker."""
    return {replica.id: rank for rank, replica in enumerate(plan.replicas_of(*COMPUTING))}


def rank_zero_place(plan: Plan, placement: Placement) -> Place | None:
    """Return the place of rank 0, to which the others connect."""
    return placement[plan.chief] if plan.chief else None
