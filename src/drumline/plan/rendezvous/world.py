"""Ranks: the chief first, then the workers. Parameter servers and evaluators have none."""

from __future__ import annotations

from drumline.plan.types import COMPUTING, Place, Placement, Plan, ReplicaId


def ranks(plan: Plan) -> dict[ReplicaId, int]:
    """The rank of each replica that computes."""
    return {replica.id: rank for rank, replica in enumerate(plan.replicas_of(*COMPUTING))}


def leader(plan: Plan, placement: Placement) -> Place | None:
    """Where rank 0 is, whom everybody asks first."""
    return placement[plan.chief] if plan.chief else None
