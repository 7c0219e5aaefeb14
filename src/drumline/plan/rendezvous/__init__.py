"""How replicas find each other, one file per framework: variables from a plan and a placement.

Each module has RESERVED, the names of its variables, and ``variables(plan, placement)``, which returns a function from
a replica to its variables. Values that all replicas share are computed only once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from drumline.plan.rendezvous import jax, tensorflow, torch
from drumline.plan.types import LaunchValue, Placement, Plan, ReplicaId

VariablesOf = Callable[[ReplicaId], Mapping[str, LaunchValue]]

RESERVED: Mapping[str, frozenset[str]] = {
    "tensorflow": tensorflow.RESERVED,
    "torch": torch.RESERVED,
    "jax": jax.RESERVED,
    "plain": frozenset(),
}


def variables(plan: Plan, placement: Placement, attempt: int) -> VariablesOf:
    """Return the function that returns the variables of a replica for its framework."""
    match plan.framework:
        case "tensorflow":
            return tensorflow.variables(plan, placement)
        case "torch":
            return torch.variables(plan, placement, attempt)
        case "jax":
            return jax.variables(plan, placement)
        case _:
            return lambda _: {}
