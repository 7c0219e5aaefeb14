"""GPUs assigned to the replicas of a run, and the variables for that."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from drumline.engine.local.gpu_assignment import assign_gpus
from drumline.engine.protocol import Capacity, Site
from drumline.engine.registry import open_engine
from drumline.plan.bind import bind
from drumline.plan.types import LaunchValue
from scaffold.plans import plan_of


def gpus(text: str, machine: str, own: str = "", taken: str = "") -> str:
    """Return an assignment as `chief.0=0,1 worker.0=`; a replica without one is left out."""
    division = assign_gpus(plan_of(text), tuple(machine), tuple(own), frozenset(taken))
    return " ".join(f"{name}={','.join(several)}" for name, several in sorted(division.gpus.items()))


def warnings(text: str, machine: str, own: str = "", taken: str = "") -> list[str]:
    return list(assign_gpus(plan_of(text), tuple(machine), tuple(own), frozenset(taken)).warnings)


@pytest.mark.parametrize(
    ("text", "machine", "own", "taken", "expected"),
    [
        ("roles: {worker: 2}", "0123", "", "", "worker.0=0,1 worker.1=2,3"),
        ("roles: {worker: 2}", "01234", "", "", "worker.0=0,1 worker.1=2,3"),
        ("roles: {worker: 1}", "0123", "", "", "worker.0=0,1,2,3"),
        ("roles: {worker: 2}", "0123", "", "02", "worker.0=1 worker.1=3"),
        ("roles: {worker: 3}", "01", "", "", "worker.0=0 worker.1=1 worker.2=0"),
        ("roles: {worker: 2}", "01", "", "01", "worker.0= worker.1="),
        ("roles: {worker: 2}", "", "", "", ""),
        ("roles: {chief: 1, worker: 1, ps: 1, evaluator: 1}", "01", "", "", "chief.0=0 evaluator.0= ps.0= worker.0=1"),
        ("roles: {worker: 2}\nresources: {gpus: 1}", "0123", "02", "1", "worker.0=0 worker.1=2"),
        ("roles: {worker: 2}\nresources: {gpus: 0}", "0123", "", "", "worker.0= worker.1="),
        ("roles: {worker: 2}\nresources: {gpus: 0}", "", "", "", "worker.0= worker.1="),
        ("roles: {chief: {resources: {gpus: 2}}, worker: 2}", "0123", "01", "", "chief.0=0,1 worker.0=2 worker.1=3"),
        ("roles: {worker: 1, ps: {resources: {gpus: 1}}}", "01", "0", "", "ps.0=0 worker.0=1"),
        ("roles: {worker: 2}\nresources: {gpus: 2}", "01", "0101", "", "worker.0=0,1 worker.1=0,1"),
        ("roles: {worker: 1}\nresources: {gpus: 4}", "01", "0101", "", "worker.0=0,1"),
    ],
)
def test_replicas_get_the_gpus_they_ask_for_and_the_rest_is_shared_evenly(
    text: str, machine: str, own: str, taken: str, expected: str
) -> None:
    assert gpus(text, machine, own, taken) == expected


@pytest.mark.parametrize(
    ("text", "machine", "own", "taken", "expected"),
    [
        ("roles: {worker: 2}", "0123", "", "", []),
        ("roles: {worker: 2}", "", "", "", []),
        ("roles: {worker: 4}", "01", "", "", ["worker.0, worker.1, worker.2 and worker.3 share 2 GPUs"]),
        ("roles: {worker: 5}", "0", "", "", ["5 replicas share 1 GPU"]),
        (
            "roles: {worker: 2}",
            "01",
            "",
            "01",
            [
                (
                    "every GPU is claimed, so worker.0 and worker.1 see none;"
                    " with `resources: {gpus: 1}` a run waits for one"
                )
            ],
        ),
        ("roles: {worker: 1}\nresources: {gpus: 2}", "01", "01", "1", ["worker.0 shares 1 GPU with other runs"]),
        ("roles: {worker: 1, ps: 1}\nresources: {gpus: 0}", "01", "", "01", []),
    ],
)
def test_unexpected_assignments_are_warned_of(
    text: str, machine: str, own: str, taken: str, expected: list[str]
) -> None:
    assert warnings(text, machine, own, taken) == expected


def envs(text: str, machine: str, tmp_path: Path) -> dict[str, dict[str, LaunchValue]]:
    """Return the variables of every replica on a machine with these GPUs."""
    plan = plan_of(text)
    engine = open_engine("local", Site(tmp_path, tmp_path / "home", 8, capacity=Capacity(8, 1 << 40, tuple(machine))))
    placement = asyncio.run(engine.place(plan))
    return {str(launch.replica.id): dict(launch.env) for launch in bind(plan, placement)}


def seen(env: dict[str, LaunchValue]) -> tuple[LaunchValue | None, ...]:
    return tuple(env.get(name) for name in ("CUDA_VISIBLE_DEVICES", "TF_FORCE_GPU_ALLOW_GROWTH"))


def test_each_replica_is_shown_its_own_gpus(tmp_path: Path) -> None:
    env = envs("roles: {worker: 2, ps: 1}", "0123", tmp_path)
    assert [seen(each) for each in env.values()] == [("0,1", None), ("2,3", None), ("", None)]


def test_memory_grows_where_gpus_are_shared(tmp_path: Path) -> None:
    env = envs("roles: {chief: 1, worker: 1, ps: 1}", "0", tmp_path)
    assert [seen(each) for each in env.values()] == [("0", "true"), ("0", "true"), ("", None)]
    jax = envs("framework: jax\nroles: {worker: 2}", "0", tmp_path)
    assert {each["XLA_PYTHON_CLIENT_PREALLOCATE"] for each in jax.values()} == {"false"}


def test_without_gpus_no_variable_is_set_unless_the_spec_requests_none(tmp_path: Path) -> None:
    assert seen(envs("roles: {worker: 1}", "", tmp_path)["worker.0"]) == (None, None)
    assert seen(envs("resources: {gpus: 0}", "", tmp_path)["worker.0"]) == ("", None)


def test_the_gpus_in_a_variable_of_the_spec_are_not_changed(tmp_path: Path) -> None:
    env = envs("framework: jax\nroles: {worker: 2}\nenv: {CUDA_VISIBLE_DEVICES: '1'}", "0123", tmp_path)
    assert {each["CUDA_VISIBLE_DEVICES"] for each in env.values()} == {"1"}
    assert not any("JAX_LOCAL_DEVICE_IDS" in each for each in env.values())


@pytest.mark.parametrize("machine", ["", "0", "01", "0123", "01234567"])
@pytest.mark.parametrize("asked", ["", "resources: {gpus: 0}", "resources: {gpus: 1}", "resources: {gpus: 2}"])
def test_the_local_rank_of_torch_is_below_the_number_of_visible_gpus(tmp_path: Path, machine: str, asked: str) -> None:
    for env in envs(f"framework: torch\nroles: {{chief: 1, worker: 3}}\n{asked}", machine, tmp_path).values():
        several = str(env.get("CUDA_VISIBLE_DEVICES", "")).split(",")
        assert int(str(env["LOCAL_RANK"])) in range(len(several))
        assert int(str(env["LOCAL_WORLD_SIZE"])) in range(1, len(several) + 1)


def test_jax_uses_all_gpus_of_its_replica(tmp_path: Path) -> None:
    env = envs("framework: jax\nroles: {worker: 2}", "0123", tmp_path)
    assert [(each["CUDA_VISIBLE_DEVICES"], each["JAX_LOCAL_DEVICE_IDS"]) for each in env.values()] == [
        ("0,1", "0,1"),
        ("2,3", "0,1"),
    ]
