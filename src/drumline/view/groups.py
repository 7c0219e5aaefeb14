"""Group the replicas of a plan for display."""

from __future__ import annotations

from drumline.plan.command import format_argv
from drumline.plan.types import ROLES, Plan, Replica
from drumline.record import Record
from drumline.words import count, listed


class ReplicaGroup(Record):
    """Replicas of a role with the same command and resources."""

    replicas: str
    size: int
    command: str
    cpus: float | None
    memory_bytes: int | None
    gpus: int | None


def group_replicas(plan: Plan) -> list[ReplicaGroup]:
    """Return the replicas of a plan; neighbours with the same role, command and resources are one group."""
    groups: list[list[Replica]] = []
    for replica in plan.replicas:
        if groups and _alike(groups[-1][0], replica):
            groups[-1].append(replica)
        else:
            groups.append([replica])
    return [_row(group) for group in groups]


def count_replicas(plan: Plan) -> str:
    """Return `1 chief, 3 workers and 2 ps`."""
    numbers = dict.fromkeys(ROLES, 0)
    for replica in plan.replicas:
        numbers[replica.id.role] += 1
    return listed([count(number, role) for role, number in numbers.items() if number])


def _alike(one: Replica, other: Replica) -> bool:
    return (one.id.role, one.argv, one.resources) == (other.id.role, other.argv, other.resources)


def _row(group: list[Replica]) -> ReplicaGroup:
    first, last = group[0], group[-1]
    return ReplicaGroup(
        replicas=str(first.id) if first is last else f"{first.id}-{last.id.index}",
        size=len(group),
        command=format_argv(first.argv),
        cpus=first.resources.cpus,
        memory_bytes=first.resources.memory_bytes,
        gpus=first.resources.gpus,
    )
