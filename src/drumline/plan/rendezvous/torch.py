"""PyTorch: the variables that torchrun sets, with the values of `torchrun --nproc-per-node 1 --role ROLE`.

Each replica counts as a separate node: it sees only its own devices, so its LOCAL_RANK is 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from drumline.plan.rendezvous.rank import rank_zero_place, ranks
from drumline.plan.types import Placement, Plan, ReplicaId

# Its value is the attempt. An engine that counts attempts itself has to set it.
RESTART_COUNT = "TORCHELASTIC_RESTART_COUNT"

RESERVED = frozenset(
    {
        "MASTER_ADDR",
        "MASTER_PORT",
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "GROUP_RANK",
        "GROUP_WORLD_SIZE",
        "NODE_RANK",
        "ROLE_NAME",
        "ROLE_RANK",
        "ROLE_WORLD_SIZE",
        RESTART_COUNT,
        "TORCHELASTIC_MAX_RESTARTS",
        "TORCHELASTIC_RUN_ID",
    }
)


def variables(plan: Plan, placement: Placement, attempt: int) -> Callable[[ReplicaId], Mapping[str, str]]:
    """Return the function that returns the variables of each replica.

    A single chief or worker has none, unless `torch.rendezvous` is `always`: if RANK is set, many scripts assume that
    there are several processes with GPUs.
    """
    rank_of, first = ranks(plan), rank_zero_place(plan, placement)
    if len(rank_of) == 1 and not plan.torch_rendezvous_always:
        return lambda _: {}
    role_sizes = Counter(replica.role for replica in rank_of)
    shared = {
        "TORCHELASTIC_RUN_ID": plan.run,
        RESTART_COUNT: str(attempt),
        # Losses and preemptions have separate budgets, so the attempt may exceed the budget of crashes.
        "TORCHELASTIC_MAX_RESTARTS": str(max(plan.restart.crash, attempt)),
    }

    def variables_of(me: ReplicaId) -> Mapping[str, str]:
        if me not in rank_of or first is None:
            return {}
        rank, size = str(rank_of[me]), str(len(rank_of))
        return {
            "MASTER_ADDR": first.host,
            "MASTER_PORT": str(first.port),
            "WORLD_SIZE": size,
            "RANK": rank,
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "GROUP_RANK": rank,
            "GROUP_WORLD_SIZE": size,
            "NODE_RANK": rank,
            "ROLE_NAME": me.role,
            "ROLE_RANK": str(me.index),
            "ROLE_WORLD_SIZE": str(role_sizes[me.role]),
            **shared,
        }

    return variables_of
