"""The replicas of a plan in groups for display."""

from __future__ import annotations

from drumline.view.groups import ReplicaGroup, count_replicas, group_replicas
from scaffold.plans import plan_of


def test_neighbours_with_the_same_role_command_and_resources_are_one_group() -> None:
    plan = plan_of("roles: {chief: 1, worker: 3, ps: {replicas: 2, resources: {cpus: 1, memory: 1GiB, gpus: 0}}}")
    command = "python train.py"
    assert group_replicas(plan) == [
        ReplicaGroup("chief.0", 1, command, None, None, None),
        ReplicaGroup("worker.0-2", 3, command, None, None, None),
        ReplicaGroup("ps.0-1", 2, command, 1.0, 1024**3, 0),
    ]


def test_a_first_replica_with_another_command_is_a_separate_group() -> None:
    plan = plan_of("roles: {worker: {replicas: 3, first: {run: python lead.py}}}")
    assert [(row.replicas, row.size, row.command) for row in group_replicas(plan)] == [
        ("worker.0", 1, "python lead.py"),
        ("worker.1-2", 2, "python train.py"),
    ]


def test_roles_are_counted_in_the_order_of_the_plan() -> None:
    plan = plan_of("roles: {evaluator: 1, ps: 2, worker: 3, master: 1}")
    assert count_replicas(plan) == "1 chief, 3 workers, 2 ps and 1 evaluator"
    assert count_replicas(plan_of("")) == "1 worker"
