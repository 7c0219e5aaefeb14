"""Make a plan from a valid spec."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from types import MappingProxyType

from drumline.plan import types
from drumline.plan.command import make_argv
from drumline.plan.environment import environment_of
from drumline.plan.name import replica_name, variable_name
from drumline.plan.parameters import fill
from drumline.plan.types import ROLES, Plan, Preparation, Replica, ReplicaId, Secret, Value
from drumline.record import Record
from drumline.spec.types import Data, Resources, Role, Run, Spec, Warm
from drumline.spec.types import Value as EnvValue

_PROGRESS_SECONDS = 1800.0


class EnginePart(Record):
    """The part of a plan that an engine makes from its block of the spec."""

    options: Mapping[str, object] = MappingProxyType({})
    where: str = "this machine"
    is_elsewhere: bool = False
    fetches_output: bool = False
    builds: bool | None = None  # None: true if the spec has an environment
    restarts_whole: bool = False
    forks_warm: bool = False  # the engine can fork replicas from a process that has imported the framework


def make_plan(spec: Spec, engine: str, part: EnginePart, *, run: str = "0") -> Plan:
    """Return the plan of a spec on this engine. `rules.spec_problems` must have found no fatal problem in the spec."""
    # The placeholders of parameters without a value are kept.
    values = {name: f"{{{{ {name} }}}}" if value is None else value for name, value in spec.parameters.items()}
    name = spec.name or spec.project
    directories = {**values, "run": run}
    data = data_of(spec)
    environment = environment_of(spec)
    return Plan(
        run=run,
        project=spec.project,
        name=name,
        framework=spec.framework,
        engine=engine,
        replicas=tuple(_replicas(spec, name, run, values)),
        success=spec.success or ("chief" if chief_of(spec) else "all-workers"),
        workdir=spec.workdir,
        output=spec.output and fill(spec.output, directories),
        checkpoint=spec.checkpoint and fill(spec.checkpoint, directories),
        parameters=values,
        data=tuple(types.Data(variable, fill(item.path, values)) for variable, item in data.items()),
        environment=environment,
        preparations=tuple(
            _preparation(spec, variable, item, item.prepare, values) for variable, item in data.items() if item.prepare
        ),
        restart=_restart(spec),
        timeouts=types.Timeouts(
            start_seconds=spec.timeouts.start,
            rendezvous_seconds=spec.timeouts.rendezvous,
            grace_seconds=types.Timeouts().grace_seconds if spec.timeouts.grace is None else spec.timeouts.grace,
            run_seconds=spec.timeouts.run,
            progress_seconds=_progress_seconds(spec),
            steps_seconds=spec.timeouts.steps,
            is_grace_set=spec.timeouts.grace is not None,
        ),
        tf_config_always=spec.tensorflow.tf_config == "always",
        evaluator_in_cluster=spec.tensorflow.evaluator_in_cluster,
        torch_rendezvous_always=spec.torch.rendezvous == "always",
        warm=_warm(spec) if part.forks_warm else None,
        tensorboard=_tensorboard(spec),
        options=part.options,
        where=part.where,
        is_elsewhere=part.is_elsewhere,
        fetches_output=part.fetches_output,
        builds=environment is not None if part.builds is None else part.builds,
        restarts_whole=part.restarts_whole,
    )


def roles_of(spec: Spec) -> dict[str, Role]:
    """Return the roles in the order of the plan; a spec without roles is one worker."""
    named = {
        "chief": chief_of(spec),
        "worker": spec.roles.worker,
        "ps": spec.roles.ps,
        "evaluator": spec.roles.evaluator,
    }
    return {name: role for name in ROLES if (role := named[name])} or {"worker": Role()}


def chief_of(spec: Spec) -> Role | None:
    """Return the role `chief`, or `master`, which is its other name."""
    return spec.roles.chief or spec.roles.master


def data_of(spec: Spec) -> dict[str, Data]:
    """Return the data folders of a spec by the variables that will name them."""
    several = () if spec.data is None else (spec.data,) if isinstance(spec.data, Data) else spec.data
    return {f"DATA_DIR_{variable_name(data.name)}" if data.name else "DATA_DIR": data for data in several}


def _progress_seconds(spec: Spec) -> float | None:
    """Return the seconds without progress after which a run counts as hung; None if there is no limit.

    Plain commands have no limit by default.
    """
    seconds = spec.timeouts.progress
    if seconds is None:
        return None if spec.framework == "plain" else _PROGRESS_SECONDS
    return None if seconds == inf else seconds


def _warm(spec: Spec) -> types.Warm | None:
    """Return the settings of warm processes; None if there are none, as by default for plain commands."""
    if spec.warm is False or (spec.warm is None and spec.framework == "plain"):
        return None
    return types.Warm(spec.warm.modules, spec.warm.keep) if isinstance(spec.warm, Warm) else types.Warm()


def _tensorboard(spec: Spec) -> bool | None:
    """Return whether TensorBoard is started; None: when summaries exist, the default for TensorFlow."""
    if spec.tensorboard is None and spec.framework != "tensorflow":
        return False
    return spec.tensorboard


def _replicas(spec: Spec, name: str, run: str, values: Mapping[str, str]) -> Iterator[Replica]:
    for role_name, role in roles_of(spec).items():
        command = role.run or spec.run
        first_command = role.first.run or command
        if command is None and (role.replicas > 1 or first_command is None):
            raise ValueError(f"{role_name} has nothing to run")  # `spec_problems` has reported this
        argv = make_argv(command, values) if command else ()
        env = _env({**spec.env, **role.env}, values)
        resources = _resources(role.resources or spec.resources)
        for index in range(role.replicas):
            fixed = isinstance(role.port, tuple)
            port = role.port[index] if isinstance(role.port, tuple) else role.port or spec.port
            replica = Replica(
                ReplicaId(role_name, index),
                replica_name(name, run, role_name, index),
                argv,
                env,
                resources,
                port,
                fixed,
            )
            yield _with_first(replica, role, first_command, values) if index == 0 else replica


def _with_first(replica: Replica, role: Role, command: Run | None, values: Mapping[str, str]) -> Replica:
    """Return replica 0 with the changes of `first`."""
    more = role.first.resources
    own = replica.resources
    return Replica(
        id=replica.id,
        name=replica.name,
        argv=make_argv(command, values) if command else replica.argv,
        env={**replica.env, **_env(role.first.env, values)},
        resources=types.Resources(
            cpus=own.cpus if more.cpus is None else more.cpus,
            memory_bytes=own.memory_bytes if more.memory is None else more.memory,
            gpus=own.gpus if more.gpus is None else more.gpus,
        ),
        port=replica.port,
        port_fixed=replica.port_fixed,
    )


def _preparation(spec: Spec, variable: str, data: Data, command: Run, values: Mapping[str, str]) -> Preparation:
    argv = make_argv(command, values)
    path = fill(data.path, values)
    return Preparation(
        name=f"prepare-{data.name}" if data.name else "prepare",
        variable=variable,
        path=path,
        argv=argv,
        env={**{variable_name(name): value for name, value in values.items()}, **_env(spec.env, values)},
    )


def _env(env: Mapping[str, EnvValue], values: Mapping[str, str]) -> dict[str, Value]:
    return {
        name: Secret(value.from_) if value.from_ else fill(value.value or "", values) for name, value in env.items()
    }


def _resources(resources: Resources) -> types.Resources:
    return types.Resources(resources.cpus, resources.memory, resources.gpus)


def _restart(spec: Spec) -> types.Restart:
    asked = spec.restart

    def budget(own: int | None) -> int:
        return asked.budget if own is None else own

    return types.Restart(
        crash=budget(asked.crash),
        lost=budget(asked.lost),
        preempted=budget(asked.preempted),
        hang=budget(asked.hang),
        rendezvous=budget(asked.rendezvous),
        out_of_memory=asked.out_of_memory,
        early=asked.early,
        backoff_initial_seconds=asked.backoff.initial,
        backoff_factor=asked.backoff.factor,
        backoff_maximum_seconds=asked.backoff.maximum,
        permanent_codes=asked.permanent,
    )
