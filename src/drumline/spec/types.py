"""The spec: one frozen type per block of ``drumline.yml``, one field per key.

A type that names a ``short`` field may be written as that field's value alone: ``worker: 3`` is
``worker: {replicas: 3}``. The reader and the JSON Schema both follow these types and nothing else.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from drumline.spec.block import (
    Block,
    Budget,
    Bytes,
    Count,
    ExitCodes,
    ModuleName,
    Name,
    ObjectName,
    ParameterName,
    Path,
    Port,
    Scalar,
    Seconds,
    SecondsOrNever,
    TensorFlowVersion,
    Text,
    Variable,
)
from drumline.spec.engine import Engine
from drumline.spec.hosts import HostName
from drumline.spec.struct import Meta, field, structs

Framework = Literal["tensorflow", "torch", "jax", "plain"]
Success = Literal["chief", "all-workers", "worker-0"]


class Run(Block, frozen=True):
    """The command of a replica: a shell command, several in order until one fails, or the arguments of one command."""

    short: ClassVar[str | None] = "shell"
    shell: Text | Annotated[tuple[Text, ...], Meta(min_length=1)] | None = None
    argv: Annotated[tuple[str, ...], Meta(min_length=1)] | None = None


class Value(Block, frozen=True):
    """The value of an environment variable, or the variable that it is copied from."""

    short: ClassVar[str | None] = "value"
    value: Scalar | None = None
    from_: Annotated[
        Variable | None, Meta(description="A variable of the shell that starts the run; never written to disk or shown")
    ] = field(default=None, name="from")
    override: Annotated[bool, Meta(description="Replace a variable that drumline sets itself")] = False


class Resources(Block, frozen=True):
    """What a replica claims; by default nothing."""

    cpus: Annotated[float, Meta(ge=0.01, le=10_000)] | None = None
    memory: Bytes | None = None
    gpus: Annotated[int, Meta(ge=0, le=1000)] | None = None


class First(Block, frozen=True):
    """Settings of replica 0 of a role. Its resources and variables are added to those of the role."""

    run: Run | None = None
    env: dict[Variable, Value] = {}
    resources: Resources = Resources()


class Role(Block, frozen=True):
    """The number of replicas of a role, and its own settings."""

    short: ClassVar[str | None] = "replicas"
    replicas: Count = 1
    run: Run | None = None
    env: dict[Variable, Value] = {}
    resources: Annotated[Resources | None, Meta(description="Replace the spec's resources completely")] = None
    port: Port | Annotated[tuple[Port, ...], Meta(min_length=1, description="One per replica")] | None = None
    first: First = First()
    hosts: Annotated[
        tuple[HostName, ...],
        Meta(description="With ssh, the host of each replica; by default they are spread evenly"),
    ] = ()
    pod: Annotated[
        dict[str, Any], Meta(description="In a cluster, a merge patch for the spec of this role's pods")
    ] = {}


class Roles(Block, frozen=True):
    """The roles of a run."""

    keys_need_values: ClassVar[bool] = True
    chief: Annotated[Role | None, Meta(description="Coordinates; exactly one")] = None
    master: Annotated[Role | None, Meta(description="The same as chief")] = None
    worker: Role | None = None
    ps: Annotated[Role | None, Meta(description="Parameter servers; stopped when the others have finished")] = None
    evaluator: Role | None = None


class Volume(Block, frozen=True):
    """A volume of a cluster: an existing claim, or one that is created for the run and kept after it."""

    short: ClassVar[str | None] = "claim"
    claim: Annotated[ObjectName | None, Meta(description="An existing claim")] = None
    size: Annotated[Bytes | None, Meta(description="The size of a claim that is created for the run")] = None
    class_: Annotated[ObjectName | None, Meta(description="Its storage class; by default that of the cluster")] = field(
        default=None, name="class"
    )
    access: Annotated[
        Literal["ReadWriteMany", "ReadWriteOnce"] | None,
        Meta(description="ReadWriteMany: for every replica. ReadWriteOnce (the default): for the chief only"),
    ] = None


class Data(Block, frozen=True):
    """Data given to every replica: a path, or a volume mounted there."""

    short: ClassVar[str | None] = "path"
    path: Path
    name: Annotated[
        ParameterName | None,
        Meta(
            description="The path is set as DATA_DIR_NAME, with this name in capitals; the first path also as DATA_DIR"
        ),
    ] = None
    volume: Annotated[Volume | None, Meta(description="Where the data are in a cluster")] = None
    prepare: Annotated[
        Run | None, Meta(description="Runs once, before any replica; the data appear only when they are complete")
    ] = None


class Backoff(Block, frozen=True):
    """How long to wait between attempts; the first restart has no delay."""

    initial: Seconds = 1.0
    factor: Annotated[float, Meta(ge=1, le=100)] = 2.0
    maximum: Seconds = 300.0


class Restart(Block, frozen=True):
    """How often the run restarts, by class of failure."""

    short: ClassVar[str | None] = "budget"
    budget: Annotated[
        Budget, Meta(description="For every class below without a number, except `early` and `out_of_memory`")
    ] = 0
    crash: Annotated[Budget | None, Meta(description="User code failed")] = None
    early: Annotated[Budget, Meta(description="User code failed before its first step; by default not retried")] = 0
    lost: Annotated[Budget | None, Meta(description="A host or pod is gone")] = None
    preempted: Annotated[Budget | None, Meta(description="Evicted or preempted, with time to save")] = None
    hang: Annotated[Budget | None, Meta(description="No replica made progress")] = None
    rendezvous: Annotated[Budget | None, Meta(description="The replicas could not connect to each other in time")] = (
        None
    )
    out_of_memory: Annotated[Budget, Meta(description="By default not retried")] = 0
    permanent: Annotated[
        tuple[ExitCodes, ...],
        Meta(description="Exit codes after which nothing restarts; a signal counts as 128 plus its number"),
    ] = ()
    backoff: Backoff = Backoff()


class Timeouts(Block, frozen=True):
    """Time limits."""

    start: Annotated[Seconds, Meta(description="Until every replica runs")] = 600.0
    rendezvous: Annotated[Seconds, Meta(description="Until the replicas are connected to each other")] = 600.0
    grace: Annotated[
        Seconds | None,
        Meta(description="Between TERM and KILL; by default 10s, or 0 for replicas that need the failed one to save"),
    ] = None
    run: Annotated[Seconds | None, Meta(description="For the whole run")] = None
    progress: Annotated[
        SecondsOrNever | None,
        Meta(description="Without a step, output, computation or transferred bytes, before a run counts as hung"),
    ] = None
    steps: Annotated[
        Seconds | None,
        Meta(description="Without a step, after the first two that can be read, before a run counts as hung"),
    ] = None


class TensorFlow(Block, frozen=True):
    """The version of TensorFlow, and how TF_CONFIG is written."""

    version: Annotated[
        TensorFlowVersion | None, Meta(description="Installed in an environment, with a Python that it runs on")
    ] = None
    tf_config: Annotated[
        Literal["auto", "always"],
        Meta(description="auto: a single replica gets no TF_CONFIG, since it needs none"),
    ] = "auto"
    evaluator_in_cluster: Annotated[
        bool, Meta(description="List the evaluator in TF_CONFIG's cluster, as TensorFlow 1 requires")
    ] = False


class Torch(Block, frozen=True):
    """How PyTorch's variables are set."""

    rendezvous: Annotated[
        Literal["auto", "always"],
        Meta(description="auto: a single rank has no RANK and trains as without a launcher; always: as under torchrun"),
    ] = "auto"


class Environment(Block, frozen=True):
    """A Python environment for the run, built once and shared by all runs with the same settings."""

    short: ClassVar[str | None] = "requirements"
    python: Annotated[
        Text | None,
        Meta(description="A version such as 3.11, or an interpreter's path; by default the Python of the shell"),
    ] = None
    requirements: Annotated[
        Path | tuple[Text, ...], Meta(description="The packages for pip: a list, or the path of a requirements file")
    ] = ()


class Warm(Block, frozen=True):
    """A process with the framework imported, from which replicas are forked on this machine."""

    modules: Annotated[
        tuple[ModuleName, ...],
        Meta(description="Imported after the framework: packages of the environment"),
    ] = field(default=(), name="import")
    keep: Annotated[Seconds, Meta(description="How long it is kept for the next run")] = 600.0


class Spec(Block, frozen=True):
    """What to train, with which roles, and where."""

    project: Annotated[Name, Meta(description="The project; the prefix of all names")]
    run: Annotated[Run | None, Meta(description="For every role without its own `run`")] = None
    name: Annotated[Name | None, Meta(description="The name of this run, instead of the project's")] = None
    framework: Framework = "tensorflow"
    tensorflow: TensorFlow = TensorFlow()
    torch: Torch = Torch()
    environment: Annotated[
        Environment | None, Meta(description="By default replicas run with the Python of the shell that starts the run")
    ] = None
    roles: Roles = Roles()
    parameters: Annotated[
        dict[ParameterName, Scalar | None],
        Meta(description="Values for `{{ name }}`, also set as variables; a parameter without a value needs -p"),
    ] = {}
    resources: Annotated[Resources, Meta(description="For every role without its own")] = Resources()
    port: Annotated[
        Port | None, Meta(description="The first port if replicas share an address; else the port of each")
    ] = None
    env: dict[Variable, Value] = {}
    workdir: Annotated[Path, Meta(description="Where commands run; by default the folder of this file")] = "."
    output: Annotated[
        Path | None, Meta(description="The run's shared folder, given as OUTPUT_DIR; may contain `{{ run }}`")
    ] = None
    checkpoint: Annotated[
        Path | None, Meta(description="Kept across attempts, given as CHECKPOINT_DIR; may contain `{{ run }}`")
    ] = None
    data: Data | Annotated[tuple[Data, ...], Meta(min_length=1)] | None = None
    restart: Restart = Restart()
    timeouts: Timeouts = Timeouts()
    success: Annotated[
        Success | None,
        Meta(description="The replicas that decide when the run has finished; by default the chief, else all workers"),
    ] = None
    tensorboard: Annotated[
        bool | None,
        Meta(description="Serve TensorBoard on loopback; by default, once a tensorflow run has written summaries"),
    ] = None
    engine: Engine = Engine()
    warm: Annotated[
        bool | Warm | None,
        Meta(description="Fork replicas from a process that has imported the framework; by default not for `plain`"),
    ] = None

    def with_parameters(self, parameters: Mapping[str, str | None]) -> Self:
        """Return the spec with these parameters."""
        return structs.replace(self, parameters=dict(parameters))

    def with_requirements(self, lines: tuple[str, ...]) -> Self:
        """Return the spec with these requirements of its environment."""
        return structs.replace(self, environment=structs.replace(self.environment or Environment(), requirements=lines))

    def with_name(self, name: str) -> Self:
        """Return the spec with this name."""
        return structs.replace(self, name=name)
