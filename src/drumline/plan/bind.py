"""Complete environments: turn a plan and a placement into launches."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from drumline.plan import rendezvous
from drumline.plan.name import variable_name
from drumline.plan.types import (
    Extended,
    Launch,
    LaunchValue,
    Place,
    Placement,
    Plan,
    PreparationLaunch,
    Replica,
    ReplicaId,
)

# Variables that drumline sets for a training script. A variable of the user with the same name is refused.
CONTRACT = frozenset(
    {
        "DRUMLINE_RUN",
        "DRUMLINE_ROLE",
        "DRUMLINE_INDEX",
        "DRUMLINE_ATTEMPT",
        "DRUMLINE_CHIEF",
        "OUTPUT_DIR",
        "CHECKPOINT_DIR",
        "DATA_DIR",
    }
)


# Set only for an incarnation that is not the first of its attempt.
INCARNATION = "DRUMLINE_INCARNATION"


def reserved(framework: str) -> frozenset[str]:
    """Return the variables that `env` of a spec may set only with `override`."""
    return CONTRACT | {INCARNATION} | rendezvous.RESERVED[framework]


def bind(
    plan: Plan,
    placement: Placement,
    *,
    attempt: int = 0,
    incarnations: Mapping[ReplicaId, int] = MappingProxyType({}),
) -> tuple[Launch, ...]:
    """Return the launches of a plan: complete the environment of every replica.

    Deterministic, and linear in the number of replicas. `incarnations` has the incarnation numbers other than 0.
    """
    variables_of = rendezvous.variables(plan, placement, attempt)
    parameters = {variable_name(name): value for name, value in plan.parameters.items()}
    direct = _direct_hosts(placement)
    launches = []
    for replica in plan.replicas:
        place = placement[replica.id]
        find_variables = variables_of(replica.id)
        if place.written:
            find_variables = {name: value for name, value in find_variables.items() if name not in place.written}
        env: dict[str, LaunchValue] = {
            **_defaults(plan, place, direct),
            **_gpus(plan, replica, place),
            **_contract(plan, replica, place, attempt),
            **find_variables,
            **parameters,
            **replica.env,
        }
        incarnation = incarnations.get(replica.id, 0)
        if incarnation:
            env[INCARNATION] = str(incarnation)
        launches.append(Launch(replica, attempt, place, env, incarnation))
    return tuple(launches)


def bind_preparations(plan: Plan, place: Place) -> tuple[PreparationLaunch, ...]:
    """Return the launches of preparations; the DATA_DIR of each is the folder `partial`, which it fills."""
    paths = {data.variable: path for data, path in zip(plan.data, place.data_dirs, strict=True)}
    launches = []
    for preparation in plan.preparations:
        path = paths[preparation.variable]
        partial = f"{path}.partial"
        own = {"DATA_DIR": partial, preparation.variable: partial}
        env = {**_python(place), **preparation.env, **own}
        launches.append(PreparationLaunch(preparation, path, partial, place.workdir, env))
    return tuple(launches)


def _defaults(plan: Plan, place: Place, direct: str) -> dict[str, LaunchValue]:
    """Return default values of variables that training needs; `env` of the spec may replace them."""
    env: dict[str, LaunchValue] = {
        **_python(place),
        # gRPC sends even local traffic through `http_proxy`, and then hangs. It reads only the lower-case name; if that
        # is set, other libraries ignore the upper-case one.
        "no_proxy": Extended(direct, ",", ("no_proxy", "NO_PROXY")),
    }
    if place.cores is not None:
        # Replicas on one machine that each start a thread per core compete for the cores.
        env["OMP_NUM_THREADS"] = str(place.cores)
        if plan.framework == "tensorflow":
            env["TF_NUM_INTRAOP_THREADS"] = str(place.cores)
    return env


def _gpus(plan: Plan, replica: Replica, place: Place) -> dict[str, LaunchValue]:
    """Return the variables that show a replica only its GPUs; on shared GPUs, frameworks do not allocate all memory."""
    if place.gpus is None or "CUDA_VISIBLE_DEVICES" in replica.env:
        return {}
    env: dict[str, LaunchValue] = {"CUDA_VISIBLE_DEVICES": ",".join(place.gpus)}
    if place.gpus and plan.framework == "jax":
        # Without this variable, JAX uses only the GPU with the number of the local rank.
        env["JAX_LOCAL_DEVICE_IDS"] = ",".join(str(number) for number in range(len(place.gpus)))
    if place.gpus_shared:
        env["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
        if plan.framework == "jax":
            env["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    return env


def _python(place: Place) -> dict[str, LaunchValue]:
    path = {"PATH": Extended(place.python_dir, ":", ("PATH",))} if place.python_dir else {}
    # An empty variable has the same effect as an unset one, and every engine can write it.
    own = {"VIRTUAL_ENV": place.environment, "PYTHONHOME": ""} if place.environment else {}
    runtime: dict[str, LaunchValue] = {"DRUMLINE_RUNTIME": place.runtime} if place.runtime else {}
    if place.runtime and place.runtime_on_path:
        runtime["PYTHONPATH"] = Extended(place.runtime, ":", ("PYTHONPATH",))
    return {**path, **own, **runtime, "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"}


def _contract(plan: Plan, replica: Replica, place: Place, attempt: int) -> Mapping[str, str]:
    return {
        "DRUMLINE_RUN": plan.run,
        "DRUMLINE_ROLE": replica.id.role,
        "DRUMLINE_INDEX": str(replica.id.index),
        "DRUMLINE_ATTEMPT": str(attempt),
        **({"DRUMLINE_CHIEF": str(plan.chief)} if plan.chief else {}),
        "OUTPUT_DIR": place.output_dir,
        "CHECKPOINT_DIR": place.checkpoint_dir,
        **_data_variables(plan, place),
    }


def _data_variables(plan: Plan, place: Place) -> dict[str, str]:
    """Return the data folders by variable; the first is also DATA_DIR."""
    named = {data.variable: path for data, path in zip(plan.data, place.data_dirs, strict=True)}
    return {"DATA_DIR": place.data_dirs[0], **named} if named else {}


def _direct_hosts(placement: Placement) -> str:
    hosts = dict.fromkeys(("localhost", "127.0.0.1", "::1"))
    hosts.update(dict.fromkeys(place.domain or place.host for place in placement.values()))
    return ",".join(hosts)
