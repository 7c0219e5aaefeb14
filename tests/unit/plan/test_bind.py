"""`bind` makes launches from a plan and its placement: the variables of each replica, consistent in all of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings

from drumline.load.engine import plan_spec
from drumline.plan.bind import CONTRACT, bind, bind_preparations, reserved
from drumline.plan.codec import plan_from_json, plan_to_json
from drumline.plan.types import COMPUTING, ROLES, Extended, LaunchValue, Place, Placement, Plan, Secret, Shared
from drumline.spec.types import Spec
from scaffold.effort import examples
from scaffold.plans import envs_of, launches_of, place_of, placement_of, plan_of
from scaffold.strategies import specs

ALWAYS = {"PYTHONUNBUFFERED", "PYTHONFAULTHANDLER", "no_proxy"}
OURS = CONTRACT - {"DATA_DIR"} | ALWAYS


def config_of(env: Mapping[str, LaunchValue]) -> Any:
    return json.loads(str(env["TF_CONFIG"]))


# TensorFlow


def test_tf_config_has_the_cluster_and_the_replicas_task() -> None:
    envs = envs_of("roles: {chief: 1, worker: 2, ps: 1}")
    cluster = {
        "chief": ["127.0.0.1:2222"],
        "worker": ["127.0.0.1:2223", "127.0.0.1:2224"],
        "ps": ["127.0.0.1:2225"],
    }
    assert {name: config_of(env) for name, env in envs.items()} == {
        "chief.0": {"cluster": cluster, "task": {"type": "chief", "index": 0}},
        "worker.0": {"cluster": cluster, "task": {"type": "worker", "index": 0}},
        "worker.1": {"cluster": cluster, "task": {"type": "worker", "index": 1}},
        "ps.0": {"cluster": cluster, "task": {"type": "ps", "index": 0}},
    }


@pytest.mark.parametrize(("length", "kind"), [(1024, str), (1025, Shared)])
def test_a_cluster_of_more_than_1024_characters_is_kept_once_for_all_replicas(length: int, kind: type) -> None:
    plan = plan_of("roles: {worker: 2}")
    short = placement_of(plan)
    cluster = json.dumps(config_of(bind(plan, short)[0].env)["cluster"])
    first, second = plan.replicas
    host = short[first.id].host.ljust(length - len(cluster) + len(short[first.id].host), "x")
    placement = {**short, first.id: short[first.id].replace(host=host)}
    for launch in bind(plan, placement):
        assert isinstance(launch.env["TF_CONFIG"], kind)
        assert config_of(launch.env)["cluster"]["worker"] == [f"{host}:2222", short[second.id].address]


def test_a_master_is_written_as_chief() -> None:
    assert config_of(envs_of("roles: {master: 1, worker: 1}")["chief.0"])["task"] == {"type": "chief", "index": 0}


def test_the_evaluator_is_listed_only_in_its_own_tf_config() -> None:
    envs = envs_of("roles: {chief: 1, worker: 1, evaluator: 1}")
    training = {"chief": ["127.0.0.1:2222"], "worker": ["127.0.0.1:2223"]}
    assert config_of(envs["chief.0"])["cluster"] == training
    assert config_of(envs["worker.0"])["cluster"] == training
    assert config_of(envs["evaluator.0"]) == {
        "cluster": {**training, "evaluator": ["127.0.0.1:2224"]},
        "task": {"type": "evaluator", "index": 0},
    }


def test_the_evaluator_is_listed_for_all_replicas_if_tensorflow_1_needs_it() -> None:
    envs = envs_of("roles: {worker: 1, evaluator: 1}\ntensorflow: {evaluator_in_cluster: true}")
    clusters = [config_of(env)["cluster"] for env in envs.values()]
    assert clusters == [{"worker": ["127.0.0.1:2222"], "evaluator": ["127.0.0.1:2223"]}] * 2


@pytest.mark.parametrize("roles", ["{}", "{worker: 1}", "{chief: 1}"])
def test_a_single_replica_has_a_tf_config_only_with_the_option(roles: str) -> None:
    (alone,) = envs_of(f"roles: {roles}").values()
    assert "TF_CONFIG" not in alone
    (asked,) = envs_of(f"roles: {roles}\ntensorflow: {{tf_config: always}}").values()
    (addresses,) = config_of(asked)["cluster"].values()
    assert addresses == ["127.0.0.1:2222"]


def test_clients_of_parameter_servers_wait_for_them() -> None:
    assert envs_of("roles: {chief: 1, ps: 1}")["chief.0"]["GRPC_FAIL_FAST"] == "use_caller"
    assert "GRPC_FAIL_FAST" not in envs_of("roles: {chief: 1, worker: 1}")["chief.0"]


def test_a_long_cluster_is_encoded_once_for_all_replicas() -> None:
    envs = envs_of("roles: {worker: 100, evaluator: 1}")
    values = [env["TF_CONFIG"] for env in envs.values()]
    assert all(isinstance(value, Shared) for value in values)
    assert len({id(value.text) for value in values if isinstance(value, Shared)}) == 2
    assert {value.name for value in values if isinstance(value, Shared)} == {
        "DRUMLINE_CLUSTER",
        "DRUMLINE_EVALUATOR_CLUSTER",
    }
    evaluators = envs["evaluator.0"]["TF_CONFIG"]
    assert isinstance(evaluators, Shared)
    assert evaluators.name == "DRUMLINE_EVALUATOR_CLUSTER"
    assert len(config_of(envs["worker.99"])["cluster"]["worker"]) == 100
    assert all(value.length == len(str(value)) for value in values if isinstance(value, Shared))


def test_an_ipv6_address_has_brackets() -> None:
    plan = plan_of("roles: {worker: 2}")
    placement = {replica.id: place_of(plan, host="fe80::1", port=7) for replica in plan.replicas}
    (first, _) = bind(plan, placement)
    assert config_of(first.env)["cluster"]["worker"] == ["[fe80::1]:7"] * 2


# PyTorch and JAX


def test_rank_0_of_torch_is_the_chief_followed_by_the_workers() -> None:
    envs = envs_of("framework: torch\nroles: {worker: 2, chief: 1, evaluator: 1}")
    assert {name: env.get("RANK") for name, env in envs.items()} == {
        "chief.0": "0",
        "worker.0": "1",
        "worker.1": "2",
        "evaluator.0": None,
    }
    assert {key: value for key, value in envs["worker.1"].items() if key not in OURS} == {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "2222",
        "WORLD_SIZE": "3",
        "RANK": "2",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": "2",
        "GROUP_WORLD_SIZE": "3",
        "NODE_RANK": "2",
        "ROLE_NAME": "worker",
        "ROLE_RANK": "1",
        "ROLE_WORLD_SIZE": "2",
        "TORCHELASTIC_RUN_ID": "4",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
    }


def test_torch_gets_the_restart_count_and_the_restart_budget() -> None:
    plan = plan_of("framework: torch\nroles: {worker: 2}\nrestart: {crash: 2, lost: 5}")
    found = [
        tuple(bind(plan, placement_of(plan), attempt=attempt)[0].env[f"TORCHELASTIC_{name}"] for name in names)
        for attempt in (0, 1, 4)
        for names in [("RESTART_COUNT", "MAX_RESTARTS")]
    ]
    assert found == [("0", "2"), ("1", "2"), ("4", "4")]


@pytest.mark.parametrize("roles", ["{worker: 1}", "{chief: 1}", "{worker: 1, evaluator: 1}"])
def test_a_single_torch_rank_has_variables_only_with_the_option(roles: str) -> None:
    spec = f"framework: torch\nroles: {roles}"
    assert all(set(env) == OURS for env in envs_of(spec).values())
    env = next(iter(envs_of(f"{spec}\ntorch: {{rendezvous: always}}").values()))
    assert (env["RANK"], env["WORLD_SIZE"], env["MASTER_PORT"]) == ("0", "1", "2222")


def test_jax_processes_get_the_coordinator_their_index_and_the_count() -> None:
    envs = envs_of("framework: jax\nroles: {worker: 2}")
    assert {key: value for key, value in envs["worker.1"].items() if key not in OURS} == {
        "JAX_COORDINATOR_ADDRESS": "127.0.0.1:2222",
        "JAX_NUM_PROCESSES": "2",
        "JAX_PROCESS_ID": "1",
        "OMPI_MCA_orte_hnp_uri": "drumline",
        "OMPI_COMM_WORLD_SIZE": "2",
        "OMPI_COMM_WORLD_RANK": "1",
        "OMPI_COMM_WORLD_LOCAL_RANK": "0",
        "KERAS_DISTRIBUTION_JOB_ADDRESSES": "127.0.0.1:2222",
        "KERAS_DISTRIBUTION_NUM_PROCESSES": "2",
        "KERAS_DISTRIBUTION_PROCESS_ID": "1",
        "COORDINATOR_ADDRESS": "127.0.0.1",
        "COORDINATOR_PORT": "2222",
        "NUM_PROCESSES": "2",
        "PROCESS_ID": "1",
    }


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_an_evaluator_has_no_rank(framework: str) -> None:
    assert set(envs_of(f"framework: {framework}\nroles: {{worker: 2, evaluator: 1}}")["evaluator.0"]) == OURS


@pytest.mark.parametrize("framework", ["jax", "plain", "tensorflow", "torch"])
def test_a_single_or_plain_replica_gets_drumlines_variables_only(framework: str) -> None:
    assert set(envs_of(f"framework: {framework}")["worker.0"]) == OURS


def test_plain_replicas_have_no_rendezvous() -> None:
    assert {frozenset(env) for env in envs_of("framework: plain\nroles: {chief: 1, worker: 2}").values()} == {OURS}


# What every replica gets


def test_every_replica_gets_its_run_role_index_attempt_and_folders() -> None:
    plan = plan_of("roles: {worker: 2}", run="7.2")
    first, second = bind(plan, placement_of(plan), attempt=3)
    assert {name: second.env[name] for name in CONTRACT - {"DATA_DIR"}} == {
        "DRUMLINE_RUN": "7.2",
        "DRUMLINE_ROLE": "worker",
        "DRUMLINE_INDEX": "1",
        "DRUMLINE_ATTEMPT": "3",
        "DRUMLINE_CHIEF": "worker.0",
        "OUTPUT_DIR": "/out",
        "CHECKPOINT_DIR": "/out/checkpoint",
    }
    assert (first.attempt, second.attempt) == (3, 3)


def test_each_data_folder_has_a_variable_and_the_first_is_also_data_dir() -> None:
    env = envs_of("data: [{name: train, path: a}, {name: lr-test, path: b}]")["worker.0"]
    assert {name: value for name, value in env.items() if name.startswith("DATA")} == {
        "DATA_DIR": "/data/0",
        "DATA_DIR_TRAIN": "/data/0",
        "DATA_DIR_LR_TEST": "/data/1",
    }
    assert envs_of("data: a")["worker.0"]["DATA_DIR"] == "/data/0"
    assert "DATA_DIR" not in envs_of("")["worker.0"]


def test_parameters_are_variables_and_variables_of_the_spec_come_last() -> None:
    env = envs_of(
        """
        parameters: {lr-decay: 0.1}
        env: {PYTHONUNBUFFERED: "", OMP_NUM_THREADS: 3, TF_CONFIG: {value: mine, override: true}}
        roles: {worker: 2}
        """
    )["worker.0"]
    assert (env["LR_DECAY"], env["PYTHONUNBUFFERED"], env["OMP_NUM_THREADS"], env["TF_CONFIG"]) == (
        "0.1",
        "",
        "3",
        "mine",
    )


def test_only_the_name_of_a_secret_is_in_the_environment() -> None:
    assert envs_of("env: {TOKEN: {from: MINE}}")["worker.0"]["TOKEN"] == Secret("MINE")
    assert str(Secret("MINE")) == "${MINE:?}"


@pytest.mark.parametrize(("framework", "threads"), [("tensorflow", "3"), ("torch", None), ("plain", None)])
def test_replicas_that_share_cores_get_a_thread_limit(framework: str, threads: str | None) -> None:
    plan = plan_of(f"framework: {framework}")
    (launch,) = bind(plan, {plan.replicas[0].id: place_of(plan).replace(cores=3)})
    assert launch.env["OMP_NUM_THREADS"] == "3"
    assert launch.env.get("TF_NUM_INTRAOP_THREADS") == threads


@pytest.mark.parametrize(
    ("framework", "gpus", "variables"),
    [
        ("tensorflow", None, {}),
        ("tensorflow", (), {"CUDA_VISIBLE_DEVICES": ""}),
        ("tensorflow", ("2", "5"), {"CUDA_VISIBLE_DEVICES": "2,5"}),
        ("jax", (), {"CUDA_VISIBLE_DEVICES": ""}),
        ("jax", ("2", "5"), {"CUDA_VISIBLE_DEVICES": "2,5", "JAX_LOCAL_DEVICE_IDS": "0,1"}),
    ],
)
def test_a_replica_sees_its_gpus_and_no_others_and_jax_counts_them_from_zero(
    framework: str, gpus: tuple[str, ...] | None, variables: dict[str, str]
) -> None:
    plan = plan_of(f"framework: {framework}")
    (launch,) = bind(plan, {plan.replicas[0].id: place_of(plan).replace(gpus=gpus)})
    assert {name: value for name, value in launch.env.items() if name not in OURS} == variables


@pytest.mark.parametrize(
    ("framework", "variables"),
    [
        ("tensorflow", {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}),
        (
            "jax",
            {
                "TF_FORCE_GPU_ALLOW_GROWTH": "true",
                "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
                "JAX_LOCAL_DEVICE_IDS": "0",
            },
        ),
    ],
)
def test_replicas_that_share_a_gpu_do_not_reserve_all_its_memory(framework: str, variables: dict[str, str]) -> None:
    plan = plan_of(f"framework: {framework}")
    (launch,) = bind(plan, {plan.replicas[0].id: place_of(plan).replace(gpus=("0",), gpus_shared=True)})
    assert {name: value for name, value in launch.env.items() if name not in OURS} == {
        "CUDA_VISIBLE_DEVICES": "0",
        **variables,
    }


def test_the_visible_gpus_of_the_spec_are_not_replaced() -> None:
    plan = plan_of("env: {CUDA_VISIBLE_DEVICES: 7}")
    (launch,) = bind(plan, {plan.replicas[0].id: place_of(plan).replace(gpus=("0",), gpus_shared=True)})
    assert launch.env["CUDA_VISIBLE_DEVICES"] == "7"
    assert "TF_FORCE_GPU_ALLOW_GROWTH" not in launch.env


@pytest.mark.parametrize(
    ("runtime", "is_on_path", "path"),
    [(None, True, None), ("/r", False, None), ("/r", True, Extended("/r", ":", ("PYTHONPATH",)))],
)
def test_the_runtime_is_on_the_python_path_only_if_the_place_requires_it(
    runtime: str | None, is_on_path: bool, path: Extended | None
) -> None:
    plan = plan_of("")
    place = place_of(plan).replace(runtime=runtime, runtime_on_path=is_on_path)
    (launch,) = bind(plan, {plan.replicas[0].id: place})
    assert launch.env.get("DRUMLINE_RUNTIME") == runtime
    assert launch.env.get("PYTHONPATH") == path


def test_hosts_of_the_run_are_added_to_no_proxy() -> None:
    plan = plan_of("roles: {worker: 2}")
    (first, _) = bind(plan, placement_of(plan, hosts=True))
    hosts = "localhost,127.0.0.1,::1,worker.0.example,worker.1.example"
    assert first.env["no_proxy"] == Extended(hosts, ",", ("no_proxy", "NO_PROXY"))
    assert str(first.env["no_proxy"]) == f"{hosts}${{no_proxy:+,$no_proxy}}${{NO_PROXY:+,$NO_PROXY}}"


def test_a_domain_of_the_run_is_added_to_no_proxy() -> None:
    plan = plan_of("roles: {worker: 2}")
    placement = {name: place.replace(domain=".digits-4") for name, place in placement_of(plan, hosts=True).items()}
    (first, _) = bind(plan, placement)
    assert first.env["no_proxy"] == Extended("localhost,127.0.0.1,::1,.digits-4", ",", ("no_proxy", "NO_PROXY"))


def test_a_variable_that_an_operator_writes_is_left_out() -> None:
    plan = plan_of("roles: {chief: 1, ps: 1}")
    placement = {name: place.replace(written=("TF_CONFIG",)) for name, place in placement_of(plan).items()}
    for launch in bind(plan, placement):
        assert "TF_CONFIG" not in launch.env
        assert launch.env["GRPC_FAIL_FAST"] == "use_caller"


def test_the_python_that_launches_comes_first_in_path() -> None:
    plan = plan_of("data: {path: a, prepare: make-data}")
    place = place_of(plan, python_dir="/venv/bin")
    (launch,) = bind(plan, {plan.replicas[0].id: place})
    (preparation,) = bind_preparations(plan, place)
    assert launch.env["PATH"] == preparation.env["PATH"] == Extended("/venv/bin", ":", ("PATH",))
    assert str(launch.env["PATH"]) == "/venv/bin${PATH:+:$PATH}"


def test_replicas_with_an_environment_get_its_variables_and_the_runtime() -> None:
    plan = plan_of("environment: [six]\ndata: {path: a, prepare: make-data}")
    place = place_of(plan, python_dir="/e/bin").replace(environment="/e", runtime="/r")
    (launch,) = bind(plan, {plan.replicas[0].id: place})
    (preparation,) = bind_preparations(plan, place)
    for env in (launch.env, preparation.env):
        found = {name: str(env[name]) for name in ("PATH", "VIRTUAL_ENV", "PYTHONHOME", "DRUMLINE_RUNTIME")}
        assert found == {
            "PATH": "/e/bin${PATH:+:$PATH}",
            "VIRTUAL_ENV": "/e",
            "PYTHONHOME": "",
            "DRUMLINE_RUNTIME": "/r",
        }
    (without,) = bind(plan, {plan.replicas[0].id: place_of(plan)})
    assert not {"VIRTUAL_ENV", "PYTHONHOME", "DRUMLINE_RUNTIME"} & set(without.env)


def test_a_preparation_fills_a_folder_beside_the_one_it_makes() -> None:
    plan = plan_of(
        """
        parameters: {size: 10}
        env: {TOKEN: {from: MINE}}
        data: [{name: a, path: a}, {name: b, path: b, prepare: make-data}]
        """
    )
    (launch,) = bind_preparations(plan, place_of(plan))
    assert (launch.path, launch.partial, launch.workdir) == ("/data/1", "/data/1.partial", "/spec")
    assert launch.preparation == plan.preparations[0]
    assert launch.env == {
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",
        "SIZE": "10",
        "TOKEN": Secret("MINE"),
        "DATA_DIR": "/data/1.partial",
        "DATA_DIR_B": "/data/1.partial",
    }


def test_variables_that_a_framework_reads_are_reserved() -> None:
    for framework in ("tensorflow", "torch", "jax"):
        launches = launches_of(f"framework: {framework}\nroles: {{chief: 1, worker: 1}}")
        assert set(launches["chief.0"].env) <= reserved(framework) | ALWAYS


# Whatever the spec


@settings(max_examples=examples(60), deadline=None)
@given(spec=specs())
def test_any_valid_spec_becomes_consistent_launches(spec: Spec) -> None:
    plan = plan_spec(spec, run="4")
    assert plan_spec(spec, run="4") == plan
    assert plan_from_json(plan_to_json(plan)) == plan
    assert_in_order(plan)
    placement = placement_of(plan, hosts=len(plan.replicas) % 2 == 0)
    launches = bind(plan, placement)
    assert bind(plan, placement) == launches
    assert [launch.replica for launch in launches] == list(plan.replicas)
    assert len(bind_preparations(plan, placement[plan.replicas[0].id])) == len(plan.preparations)
    envs = {launch.replica.id: launch.env for launch in bind(without_own_variables(plan), placement)}
    match plan.framework:
        case "tensorflow":
            assert_one_cluster(plan, placement, envs)
        case "torch" if len(plan.replicas_of(*COMPUTING)) > 1 or plan.torch_rendezvous_always:
            assert_ranks(plan, placement, envs, "RANK", "WORLD_SIZE")
        case "jax" if len(plan.replicas_of(*COMPUTING)) > 1:
            assert_ranks(plan, placement, envs, "JAX_PROCESS_ID", "JAX_NUM_PROCESSES")
        case _:
            rendezvous = reserved("jax") | reserved("torch")
            assert all(set(env) & rendezvous <= CONTRACT for env in envs.values())


def without_own_variables(plan: Plan) -> Plan:
    """Return the plan without the variables of its spec, which may override any other."""
    return plan.replace(replicas=tuple(each.replace(env={}) for each in plan.replicas))


def assert_in_order(plan: Plan) -> None:
    order = [(ROLES.index(each.id.role), each.id.index) for each in plan.replicas]
    assert order == [(ROLES.index(role), at) for role in ROLES for at in range(len(plan.replicas_of(role)))]
    assert len({each.name for each in plan.replicas}) == len(plan.replicas)
    assert all(each.argv for each in plan.replicas)


def assert_one_cluster(plan: Plan, placement: Placement, envs: Mapping[Any, Mapping[str, LaunchValue]]) -> None:
    if len(plan.replicas) == 1 and not plan.tf_config_always:
        assert not any("TF_CONFIG" in env for env in envs.values())
        return
    configs = {replica: config_of(env) for replica, env in envs.items()}
    for replica, config in configs.items():
        assert config["task"] == {"type": replica.role, "index": replica.index}
        assert type(config["task"]["index"]) is int
        listed = {
            (role, at): address for role, all_of in config["cluster"].items() for at, address in enumerate(all_of)
        }
        with_evaluator = replica.role == "evaluator" or plan.evaluator_in_cluster
        assert listed == {
            (each.role, each.index): place.address
            for each, place in placement.items()
            if each.role != "evaluator" or with_evaluator
        }


def assert_ranks(
    plan: Plan, placement: Placement, envs: Mapping[Any, Mapping[str, LaunchValue]], rank: str, size: str
) -> None:
    computing = [each.id for each in plan.replicas_of(*COMPUTING)]
    assert [envs[each][rank] for each in computing] == [str(number) for number in range(len(computing))]
    assert {envs[each][size] for each in computing} == {str(len(computing))}
    leader: Place = placement[computing[0]]
    for each in computing:
        address = (
            envs[each].get("JAX_COORDINATOR_ADDRESS") or f"{envs[each]['MASTER_ADDR']}:{envs[each]['MASTER_PORT']}"
        )
        assert address == leader.address
    assert all(rank not in envs[each.id] for each in plan.replicas if each.id not in computing)
