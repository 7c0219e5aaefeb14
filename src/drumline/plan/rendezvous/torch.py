"""PyTorch: the address of rank 0, and my rank.

A replica is a node of its own: it sees the devices that it was given and no others, so its LOCAL_RANK is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from drumline.plan.rendezvous.world import leader, ranks
from drumline.plan.types import Placement, Plan, ReplicaId

RESERVED = frozenset(
    {
        "MASTER_ADDR",
        "MASTER_PORT",
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "GROUP_RANK",
        "NODE_RANK",
    }
)


def variables(plan: Plan, placement: Placement) -> Callable[[ReplicaId], Mapping[str, str]]:
    """Give each rank what `torch.distributed.init_process_group()` reads."""
    rank_of, first = ranks(plan), leader(plan, placement)

    def variables_of(me: ReplicaId) -> Mapping[str, str]:
        if me not in rank_of or first is None:
            return {}
        rank = str(rank_of[me])
        return {
            "MASTER_ADDR": first.host,
            "MASTER_PORT": str(first.port),
            "WORLD_SIZE": str(len(rank_of)),
            "RANK": rank,
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "GROUP_RANK": rank,
            "NODE_RANK": rank,
        }

    return variables_of
