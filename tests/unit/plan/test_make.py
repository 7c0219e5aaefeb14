"""`make_plan`: the replicas of a spec, with their commands and resources."""

from __future__ import annotations

import re
import textwrap

import pytest

from drumline.engine.kubernetes.plan_options import Cluster, Image, Toleration, Volume, cluster_of
from drumline.load.engine import plan_spec
from drumline.plan.types import (
    BUILD,
    Data,
    Plan,
    Preparation,
    Replica,
    ReplicaId,
    Resources,
    Restart,
    Secret,
    Timeouts,
    Warm,
)
from drumline.spec.types import First, Role, Roles, Run, Spec
from scaffold.plans import plan_of, spec_of

GIB = 1024**3


def ids(plan: Plan) -> list[str]:
    return [str(replica.id) for replica in plan.replicas]


def replica(plan: Plan, name: str) -> Replica:
    return next(each for each in plan.replicas if str(each.id) == name)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("framework: tensorflow", None),
        ("framework: torch", False),
        ("framework: plain", False),
        ("framework: torch\ntensorboard: true", True),
        ("tensorboard: true", True),
        ("tensorboard: false", False),
    ],
)
def test_tensorboard_follows_the_spec_and_by_default_the_framework(spec: str, expected: bool | None) -> None:
    assert plan_of(spec).tensorboard is expected


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("framework: torch", Warm()),
        ("framework: plain", None),
        ("framework: plain\nwarm: true", Warm()),
        ("framework: torch\nwarm: false", None),
        ("framework: torch\nwarm: {import: [keras], keep: 1h}", Warm(("keras",), 3600.0)),
    ],
)
def test_replicas_with_a_framework_start_warm_unless_the_spec_disables_it(spec: str, expected: Warm | None) -> None:
    assert plan_of(spec).warm == expected


def test_replicas_are_ordered_by_role_and_number() -> None:
    first, second, other = ReplicaId("worker", 2), ReplicaId("worker", 10), ReplicaId("ps", 3)
    assert sorted([second, first, other]) == [other, first, second]
    assert not first < ReplicaId("worker", 2)


@pytest.mark.parametrize(
    ("roles", "replicas_in_order", "chief", "success"),
    [
        ("{}", ["worker.0"], "worker.0", "all-workers"),
        ("{worker: 1}", ["worker.0"], "worker.0", "all-workers"),
        ("{worker: 3}", ["worker.0", "worker.1", "worker.2"], "worker.0", "all-workers"),
        ("{worker: 2, chief: 1}", ["chief.0", "worker.0", "worker.1"], "chief.0", "chief"),
        ("{worker: 2, master: 1}", ["chief.0", "worker.0", "worker.1"], "chief.0", "chief"),
        ("{master: 1}", ["chief.0"], "chief.0", "chief"),
        (
            "{evaluator: 1, ps: 2, worker: 1, chief: 1}",
            ["chief.0", "worker.0", "ps.0", "ps.1", "evaluator.0"],
            "chief.0",
            "chief",
        ),
        ("{evaluator: 1, worker: 1}", ["worker.0", "evaluator.0"], "worker.0", "all-workers"),
        ("{chief: {replicas: 1}, worker: {replicas: 2}}", ["chief.0", "worker.0", "worker.1"], "chief.0", "chief"),
    ],
)
def test_the_order_is_chief_workers_ps_evaluator(
    roles: str, replicas_in_order: list[str], chief: str, success: str
) -> None:
    plan = plan_of(f"roles: {roles}")
    assert ids(plan) == replicas_in_order
    assert (str(plan.chief), plan.success) == (chief, success)


def test_success_is_copied_from_the_spec() -> None:
    assert plan_of("roles: {chief: 1, worker: 2}\nsuccess: worker-0").success == "worker-0"


def test_the_command_of_a_role_replaces_the_command_of_the_spec() -> None:
    plan = plan_of("roles: {chief: {run: python lead.py}, worker: 2}\nrun: python follow.py")
    assert replica(plan, "chief.0").argv == ("python", "lead.py")
    assert replica(plan, "worker.1").argv == ("python", "follow.py")


def test_the_resources_of_a_role_replace_all_resources_of_the_spec() -> None:
    plan = plan_of(
        """
        resources: {cpus: 2, memory: 4GiB, gpus: 1}
        roles: {chief: 1, worker: {replicas: 1, resources: {cpus: 0.5}}, ps: {replicas: 1, resources: {}}}
        """
    )
    assert replica(plan, "chief.0").resources == Resources(2, 4 * GIB, 1)
    assert replica(plan, "worker.0").resources == Resources(0.5, None, None)
    assert replica(plan, "ps.0").resources == Resources()


def test_first_changes_only_replica_0_and_adds_to_the_values_of_the_role() -> None:
    plan = plan_of(
        """
        resources: {cpus: 2, memory: 4GiB}
        env: {A: spec, B: spec}
        roles:
          worker:
            replicas: 2
            env: {B: role, C: role}
            first: {run: python first.py, env: {C: first, D: first}, resources: {memory: 8GiB, gpus: 1}}
        """
    )
    first, second = plan.replicas
    assert (first.argv, second.argv) == (("python", "first.py"), ("python", "train.py"))
    assert first.env == {"A": "spec", "B": "role", "C": "first", "D": "first"}
    assert second.env == {"A": "spec", "B": "role", "C": "role"}
    assert first.resources == Resources(2, 8 * GIB, 1)
    assert second.resources == Resources(2, 4 * GIB, None)
    assert first.id == ReplicaId("worker", 0)


def test_first_without_a_command_runs_the_command_of_the_role() -> None:
    plan = plan_of("roles: {worker: {replicas: 2, first: {resources: {cpus: 4}}}}")
    assert {each.argv for each in plan.replicas} == {("python", "train.py")}


def test_a_command_for_first_is_enough_for_a_single_replica_only() -> None:
    spec = spec_of("project: digits\nroles: {worker: {first: {run: python one.py}}}")
    assert plan_spec(spec).replicas[0].argv == ("python", "one.py")
    first = First(run=Run(shell="python one.py"))
    for role in (Role(replicas=2, first=first), Role(replicas=2), Role()):
        with pytest.raises(ValueError, match="worker has nothing to run"):
            plan_spec(Spec(project="digits", roles=Roles(worker=role)))


@pytest.mark.parametrize(
    ("text", "ports"),
    [
        ("roles: {chief: 1, worker: 2}", [(None, False)] * 3),
        ("port: 2222\nroles: {chief: 1, worker: 2}", [(2222, False)] * 3),
        ("port: 2222\nroles: {chief: 1, worker: {replicas: 2, port: 3333}}", [(2222, False)] + [(3333, False)] * 2),
        ("roles: {chief: {port: [9]}, worker: {replicas: 2, port: [7, 5]}}", [(9, True), (7, True), (5, True)]),
    ],
)
def test_a_port_is_one_number_for_all_replicas_or_one_for_each(text: str, ports: list[tuple[int | None, bool]]) -> None:
    assert [(each.port, each.port_fixed) for each in plan_of(text).replicas] == ports


def test_values_replace_placeholders_in_all_keys_that_allow_them() -> None:
    plan = plan_of(
        """
        parameters: {lr: 0.1, tag: it's}
        run: python train.py --lr {{ lr }} {{ tag }}
        env: {NOTE: "a {{ tag }}"}
        output: "out/{{ run }}/{{ lr }}"
        checkpoint: "ckpt/{{ run }}"
        data: "sets/{{ tag }}"
        """,
        run="7.2",
    )
    (only,) = plan.replicas
    assert only.argv == ("python", "train.py", "--lr", "0.1", "it's")
    assert only.env == {"NOTE": "a it's"}
    assert (plan.output, plan.checkpoint) == ("out/7.2/0.1", "ckpt/7.2")
    assert plan.data == (Data("DATA_DIR", "sets/it's"),)
    assert plan.parameters == {"lr": "0.1", "tag": "it's"}


def test_a_plan_has_only_the_variable_names_of_secrets() -> None:
    plan = plan_of("env: {TOKEN: {from: MY_TOKEN}, A: 1}\nroles: {worker: {env: {A: {from: B}}}}")
    assert plan.replicas[0].env == {"TOKEN": Secret("MY_TOKEN"), "A": Secret("B")}


def test_data_is_named_by_variables_and_prepared_with_the_specs_variables() -> None:
    plan = plan_of(
        """
        parameters: {size: 10}
        env: {TOKEN: {from: TOKEN}}
        data:
          - {name: train-set, path: a, prepare: "make-data --size {{ size }}"}
          - {name: test, path: b, volume: claim}
        """
    )
    assert plan.data == (Data("DATA_DIR_TRAIN_SET", "a"), Data("DATA_DIR_TEST", "b"))
    (preparation,) = plan.preparations
    assert preparation == Preparation(
        name="prepare-train-set",
        variable="DATA_DIR_TRAIN_SET",
        path="a",
        argv=("make-data", "--size", "10"),
        env={"SIZE": "10", "TOKEN": Secret("TOKEN")},
    )


@pytest.mark.parametrize(
    ("restart", "budgets"),
    [
        ("0", Restart()),
        ("3", Restart(crash=3, lost=3, preempted=3, hang=3, rendezvous=3, out_of_memory=0)),
        ("{budget: 2, crash: 0, out_of_memory: 1}", Restart(0, 2, 2, 2, 2, 1)),
        ("{budget: 2, early: 1}", Restart(2, 2, 2, 2, 2, 0, 1)),
        ("{lost: 5}", Restart(lost=5)),
        (
            "{crash: 1, backoff: {initial: 5s, factor: 3, maximum: 1m}}",
            Restart(crash=1, backoff_initial_seconds=5, backoff_factor=3, backoff_maximum_seconds=60),
        ),
    ],
)
def test_a_budget_is_for_every_class_of_failure_that_may_not_recur(restart: str, budgets: Restart) -> None:
    assert plan_of(f"restart: {restart}").restart == budgets


def test_timeouts_are_in_seconds() -> None:
    plan = plan_of("timeouts: {start: 1m, rendezvous: 2, grace: 500ms, run: 1h, progress: 1d, steps: 5m}")
    assert plan.timeouts == Timeouts(60, 2, 0.5, 3600, 86400, 300, is_grace_set=True)


def test_a_framework_has_a_default_progress_timeout_and_a_plain_command_has_none() -> None:
    assert plan_of("framework: tensorflow").timeouts == Timeouts(progress_seconds=1800)
    assert plan_of("framework: plain").timeouts == Timeouts(progress_seconds=None)
    assert plan_of("framework: torch\ntimeouts: {progress: never}").timeouts == Timeouts(progress_seconds=None)
    assert plan_of("framework: plain\ntimeouts: {progress: 1m}").timeouts == Timeouts(progress_seconds=60)


@pytest.mark.parametrize(
    ("engine", "chosen"),
    [
        ("", "local"),
        ("engine: kubernetes", "kubernetes"),
        ("engine: {ssh: {hosts: [a]}}", "ssh"),
        ("engine: {ssh: {hosts: [a]}, kubernetes: {image: x}}", "local"),
        ("engine: {default: kubernetes, ssh: {hosts: [a]}, kubernetes: {image: x}}", "kubernetes"),
    ],
)
def test_the_engine_is_the_default_else_the_only_one_with_options_else_this_machine(engine: str, chosen: str) -> None:
    assert plan_of(engine).engine == chosen


def test_the_name_of_the_spec_replaces_the_name_of_the_project() -> None:
    assert plan_of("").replicas[0].name == "digits-4-worker-0"
    assert plan_of("name: night").replicas[0].name == "night-4-worker-0"
    assert (plan_of("name: night").project, plan_of("name: night").name) == ("digits", "night")


def test_a_helper_is_parsed_from_its_name() -> None:
    assert ReplicaId.parse("build") == BUILD


@pytest.mark.parametrize("text", ["worker.0", "ps.12", "chief.0", "evaluator.0", "worker.99999"])
def test_a_replica_id_can_be_parsed_from_its_text(text: str) -> None:
    assert str(ReplicaId.parse(text)) == text


@pytest.mark.parametrize("text", ["worker", "worker.", "worker.-1", "worker.00", "worker.٣", "w.0", "worker.0.0"])
def test_an_invalid_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        ReplicaId.parse(text)


@pytest.mark.parametrize(
    ("engine", "private"),
    [
        ("", False),
        ("engine: {local: {}}", False),
        ("engine: {local: {network: shared}}", False),
        ("engine: {local: {network: private}}", True),
        ("engine: {local: {network: {private: true}}}", True),
        ("engine: {local: {network: {private: true, outgoing: false}}}", True),
        ("engine: {local: {network: {private: false}}}", False),
        ("engine: {default: kubernetes, local: {network: private}}", False),
    ],
)
def test_a_network_is_private_on_this_machine_with_the_option(engine: str, private: bool) -> None:
    assert (plan_of(engine).options.get("private_network") or False) is private


def test_an_engine_on_kubernetes_uses_its_own_block_or_else_the_block_kubernetes() -> None:
    text = """
        data: {path: data, volume: {size: 1GiB}}
        engine:
          kubernetes: {image: a, output: models, tolerations: [gpu, {key: x, value: y}], shm: 64MiB, user: 7}
          tfjob: {image: {base: b, install: [c]}}
    """
    spec = spec_of(f"project: digits\nrun: x\n{textwrap.dedent(text)}")
    plan = plan_spec(spec, on="jobset")
    assert (plan.restarts_whole, plan.builds, plan.is_elsewhere) == (True, False, True)
    asked = cluster_of(plan)
    assert asked == Cluster(
        image=Image("a"),
        output=Volume("models"),
        data={"DATA_DIR": Volume(size_bytes=1024**3)},
        tolerations=(Toleration("gpu"), Toleration("x", "Equal", "y")),
        shm_bytes=64 * 1024**2,
        run_as=7,
    )
    other = cluster_of(plan_spec(spec, on="tfjob"))
    assert (other.image, other.output) == (Image(base="b", install=("c",)), None)
    assert plan_spec(spec, on="tfjob").helpers == (BUILD,)
    assert plan_spec(spec, on="local").options == plan_of("").options
    bare = plan_spec(spec_of("project: digits\nrun: x"), on="kubernetes")
    assert cluster_of(bare) == Cluster()
