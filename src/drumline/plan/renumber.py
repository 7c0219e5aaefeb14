"""A plan that is made already, for another run."""

from __future__ import annotations

from drumline.plan.name import replica_name
from drumline.plan.types import Plan


def renumbered(plan: Plan, run: str) -> Plan:
    """The plan of another run that differs in its number alone, and in the names that are made of it."""
    replicas = (each.replace(name=replica_name(plan.name, run, each.id.role, each.id.index)) for each in plan.replicas)
    return plan.replace(run=run, replicas=tuple(replicas))
