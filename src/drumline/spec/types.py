"""The spec: one frozen type per block of ``drumline.yml``, one field per key.

A type that names a ``short`` field may be written as that field's value alone: ``worker: 3`` is
``worker: {replicas: 3}``. The reader and the JSON Schema both follow these types and nothing else.
"""

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal, Self

from msgspec import Meta, Struct, field, structs

from drumline.spec.quantity import (
    BYTES_PATTERN,
    PATIENCE_PATTERN,
    SECONDS_PATTERN,
    parse_bytes,
    parse_patience,
    parse_seconds,
)

Framework = Literal["tensorflow", "torch", "jax", "plain"]
Success = Literal["chief", "all-workers", "worker-0"]
EngineName = Literal["local", "ssh", "kubernetes", "jobset", "tfjob"]

Count = Annotated[int, Meta(ge=1, le=100_000)]
Budget = Annotated[int, Meta(ge=0, le=1000)]
Port = Annotated[int, Meta(ge=1, le=65535)]
Scalar = Annotated[str, Meta(extra={"words": "a value"})]
NAME_PATTERN = r"^[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?$"
NAME_WORDS = "a name of at most 63 letters, digits, `-` and `_`, that begins and ends with a letter or digit"
Name = Annotated[str, Meta(pattern=NAME_PATTERN, extra={"words": NAME_WORDS})]
Variable = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        extra={"words": "a variable's name: letters, digits and `_`, not beginning with a digit"},
    ),
]
ParameterName = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z]([A-Za-z0-9_-]*[A-Za-z0-9])?$",
        extra={"words": "a parameter's name: letters, digits, `-` and `_`, beginning with a letter"},
    ),
]
ModuleName = Annotated[
    str, Meta(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$", extra={"words": "a module's name, such as transformers"})
]
TensorFlowVersion = Annotated[
    str,
    Meta(pattern=r"^2\.[0-9]{1,2}(\.[0-9]{1,2})?$", extra={"words": "a version of TensorFlow such as 2.15.1 or 2.16"}),
]
# What a cluster calls things: its API refuses every other name.
Label = Annotated[
    str,
    Meta(
        pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
        extra={
            "words": "a name of at most 63 small letters, digits and `-`, that begins and ends with one of the former"
        },
    ),
]
ObjectName = Annotated[
    str,
    Meta(
        pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?){0,7}$",
        extra={"words": "the name of an object in a cluster: small letters, digits, `-` and `.`"},
    ),
]
LabelKey = Annotated[
    str,
    Meta(
        pattern=r"^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$",
        extra={"words": "a label's name, such as team or example.com/team"},
    ),
]
LabelValue = Annotated[
    str,
    Meta(
        pattern=r"^([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?$",
        extra={"words": "a label's value: at most 63 letters, digits, `-`, `_` and `.`"},
    ),
]
Text = Annotated[str, Meta(min_length=1)]
Path = Annotated[str, Meta(min_length=1, extra={"words": "a path"})]
# `written`: the JSON types of what stands in the file, where the value is kept as another.
Bytes = Annotated[
    int,
    Meta(
        extra={"words": "an amount of memory such as 16GiB or 500MB", "parse": parse_bytes},
        extra_json_schema={"written": "string", "pattern": BYTES_PATTERN, "examples": ["16GiB", "500MB"]},
    ),
]


def _time(words: str, parse: Callable[[str], float], pattern: str, *examples: str) -> Meta:
    written = {"written": ["number", "string"], "minimum": 0, "pattern": pattern, "examples": list(examples)}
    return Meta(extra={"words": words, "parse": parse}, extra_json_schema=written)


Seconds = Annotated[float, _time("a time such as 30s, 5m or 1h", parse_seconds, SECONDS_PATTERN, "30s", "5m", "1h")]
Patience = Annotated[
    float, _time("a time such as 30m or 1h, or never", parse_patience, PATIENCE_PATTERN, "30m", "2h", "never")
]


class Block(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A mapping in the spec.

    ``short`` is the field that may stand for the whole of it. Where a key says something by being there, the block is
    ``telling``, and a key with nothing behind it a problem; elsewhere it is as if it were not there.
    """

    short: ClassVar[str | None] = None
    telling: ClassVar[bool] = False


class Run(Block, frozen=True):
    """What a replica runs: a shell command, several in order until one fails, or the words of one command."""

    short: ClassVar[str | None] = "shell"
    shell: Text | Annotated[tuple[Text, ...], Meta(min_length=1)] | None = None
    argv: Annotated[tuple[str, ...], Meta(min_length=1)] | None = None


class Value(Block, frozen=True):
    """The value of an environment variable, or where to take it from."""

    short: ClassVar[str | None] = "value"
    value: Scalar | None = None
    from_: Annotated[
        Variable | None, Meta(description="A variable of whoever launches; never written to disk or shown")
    ] = field(default=None, name="from")
    override: Annotated[bool, Meta(description="Replace a variable that drumline sets itself")] = False


class Resources(Block, frozen=True):
    """What a replica claims; what is not said is not claimed."""

    cpus: Annotated[float, Meta(ge=0.01, le=10_000)] | None = None
    memory: Bytes | None = None
    gpus: Annotated[int, Meta(ge=0, le=1000)] | None = None


class First(Block, frozen=True):
    """What differs for a role's replica 0. Its resources and variables are added to the role's."""

    run: Run | None = None
    env: dict[Variable, Value] = {}
    resources: Resources = Resources()


class Role(Block, frozen=True):
    """How many replicas a role has, and what it has of its own."""

    short: ClassVar[str | None] = "replicas"
    replicas: Count = 1
    run: Run | None = None
    env: dict[Variable, Value] = {}
    resources: Annotated[Resources | None, Meta(description="Instead of the spec's resources, as a whole")] = None
    port: Port | Annotated[tuple[Port, ...], Meta(min_length=1, description="One per replica")] | None = None
    first: First = First()


class Roles(Block, frozen=True):
    """The line: who takes part."""

    telling: ClassVar[bool] = True
    chief: Annotated[Role | None, Meta(description="Coordinates; exactly one")] = None
    master: Annotated[Role | None, Meta(description="The same as chief")] = None
    worker: Role | None = None
    ps: Annotated[Role | None, Meta(description="Parameter servers; stopped when the work is done")] = None
    evaluator: Role | None = None


class Volume(Block, frozen=True):
    """A volume of a cluster: a claim that is there, or one that is made for the run and outlives it."""

    short: ClassVar[str | None] = "claim"
    claim: Annotated[ObjectName | None, Meta(description="One that is there already")] = None
    size: Annotated[Bytes | None, Meta(description="Of one that is made for the run")] = None
    class_: Annotated[ObjectName | None, Meta(description="Its storage class; the cluster's own unless said")] = field(
        default=None, name="class"
    )
    access: Annotated[
        Literal["ReadWriteMany", "ReadWriteOnce"] | None,
        Meta(description="ReadWriteMany: for every replica. ReadWriteOnce, as unless said: for the chief alone"),
    ] = None


class Data(Block, frozen=True):
    """Data given to every replica: a path, or a volume mounted there."""

    short: ClassVar[str | None] = "path"
    path: Path
    name: Annotated[ParameterName | None, Meta(description="Given as DATA_DIR_NAME; the first is also DATA_DIR")] = None
    volume: Annotated[Volume | None, Meta(description="Where the data are in a cluster")] = None
    prepare: Annotated[
        Run | None, Meta(description="Runs once, before any replica; the data appears whole or not at all")
    ] = None


class Backoff(Block, frozen=True):
    """How long to wait between attempts; the first restart has no delay."""

    initial: Seconds = 1.0
    factor: Annotated[float, Meta(ge=1, le=100)] = 2.0
    maximum: Seconds = 300.0


class Restart(Block, frozen=True):
    """How often the whole line starts again, by class of failure."""

    short: ClassVar[str | None] = "budget"
    budget: Annotated[
        Budget, Meta(description="For every class below without a number, early and out of memory excepted")
    ] = 0
    crash: Annotated[Budget | None, Meta(description="User code failed")] = None
    early: Annotated[Budget, Meta(description="User code failed before its first step. Not retried unless asked")] = 0
    lost: Annotated[Budget | None, Meta(description="A host or pod is gone")] = None
    preempted: Annotated[Budget | None, Meta(description="Asked to leave, with time to save")] = None
    hang: Annotated[Budget | None, Meta(description="Nobody made progress")] = None
    rendezvous: Annotated[Budget | None, Meta(description="The replicas never found each other")] = None
    out_of_memory: Annotated[Budget, Meta(description="Not retried unless asked")] = 0
    backoff: Backoff = Backoff()


class Timeouts(Block, frozen=True):
    """How long to wait, and for what."""

    start: Annotated[Seconds, Meta(description="Until every replica runs")] = 600.0
    rendezvous: Annotated[Seconds, Meta(description="Until the replicas have found each other")] = 600.0
    grace: Annotated[Seconds, Meta(description="Between TERM and KILL")] = 10.0
    run: Annotated[Seconds | None, Meta(description="For the whole run")] = None
    progress: Annotated[
        Patience | None,
        Meta(description="Without a step, a line, work or bytes that move, before a run counts as hung"),
    ] = None


class TensorFlow(Block, frozen=True):
    """Which TensorFlow, and how TF_CONFIG is written."""

    version: Annotated[
        TensorFlowVersion | None, Meta(description="Installed in an environment, with a Python that it runs on")
    ] = None
    tf_config: Annotated[
        Literal["auto", "always"],
        Meta(description="auto: not for one replica alone, which trains by itself without it"),
    ] = "auto"
    evaluator_in_cluster: Annotated[
        bool, Meta(description="List the evaluator in everyone's cluster, as TensorFlow 1 wanted")
    ] = False


class Environment(Block, frozen=True):
    """A Python of the run's own, built once and shared by every run that asks for the same."""

    short: ClassVar[str | None] = "requirements"
    python: Annotated[
        Text | None,
        Meta(description="A version such as 3.11, or an interpreter's path; unless said, the Python that launches"),
    ] = None
    requirements: Annotated[
        Path | tuple[Text, ...], Meta(description="What pip would install: lines, or the path of a file of them")
    ] = ()


class Network(Block, frozen=True):
    """The network of a line on this machine."""

    private: Annotated[bool, Meta(description="Each replica at an address of its own, which only this run sees")] = (
        False
    )
    outgoing: Annotated[bool, Meta(description="Connections out of a private network; this version has none")] = False


class LocalOptions(Block, frozen=True):
    """This machine."""

    network: Annotated[
        Literal["shared", "private"] | Network,
        Meta(description="private: a network that only this run sees, without a way out"),
    ] = "shared"


class SshHost(Block, frozen=True):
    """A host reached by ssh, and what may be used of it."""

    short: ClassVar[str | None] = "host"
    host: Text
    address: Annotated[Text | None, Meta(description="The address its peers use, where it differs")] = None
    port: Annotated[Port | None, Meta(description="Its first training port, where a firewall wants a fixed one")] = None
    cpus: Annotated[float, Meta(ge=0.01)] | None = None
    memory: Bytes | None = None
    gpus: Annotated[int, Meta(ge=0)] | None = None


class SshOptions(Block, frozen=True):
    """Hosts reached with your own ssh configuration."""

    hosts: tuple[SshHost, ...] = ()


class Image(Block, frozen=True):
    """A container image: the name of one that is there, or what to build it from."""

    short: ClassVar[str | None] = "name"
    name: Text | None = None
    dockerfile: Annotated[Path | None, Meta(description="Your own file, to be built")] = None
    context: Annotated[Path | None, Meta(description="The folder that goes with it; `.` unless said")] = None
    base: Annotated[Text | None, Meta(description="An image to begin with; drumline writes the Dockerfile")] = None
    install: Annotated[tuple[Text, ...], Meta(description="What pip installs on top of the base")] = ()
    registry: Annotated[Text | None, Meta(description="Where a built image is pushed to")] = None


class Toleration(Block, frozen=True):
    """A taint of nodes that the pods put up with, in Kubernetes' own words."""

    short: ClassVar[str | None] = "key"
    key: LabelKey | None = None
    operator: Annotated[
        Literal["Exists", "Equal"] | None, Meta(description="Unless said, Equal with a value, else Exists")
    ] = None
    value: LabelValue | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    seconds: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Meta(description="How long, for NoExecute; for ever unless said"),
    ] = field(default=None, name="tolerationSeconds")


class KubernetesOptions(Block, frozen=True):
    """A cluster, where in it, and what it asks of pods."""

    context: Annotated[Text | None, Meta(description="Of your kubeconfig; the current one unless said")] = None
    namespace: Annotated[Label | None, Meta(description="That of the context unless said")] = None
    image: Image | None = None
    jobs: Annotated[
        Literal["single", "indexed"], Meta(description="A Job for each replica, or an indexed one for each role")
    ] = "single"
    output: Annotated[Volume | None, Meta(description="Where OUTPUT_DIR is; lost with the pods unless said")] = None
    code: Annotated[bool, Meta(description="Carry the project's folder into the pods")] = True
    node_selector: dict[LabelKey, LabelValue] = {}
    tolerations: tuple[Toleration, ...] = ()
    priority_class: ObjectName | None = None
    service_account: ObjectName | None = None
    pull_secrets: tuple[ObjectName, ...] = ()
    queue: Annotated[ObjectName | None, Meta(description="Of Kueue")] = None
    labels: Annotated[dict[LabelKey, LabelValue], Meta(description="On every object and pod")] = {}
    annotations: Annotated[dict[LabelKey, Scalar], Meta(description="On every object and pod")] = {}
    shm: Annotated[Bytes | None, Meta(description="The size of /dev/shm")] = None
    user: Annotated[
        Annotated[int, Meta(ge=0, le=2**31 - 1)] | None,
        Meta(description="The number of the user that the pods run as; that of the image unless said"),
    ] = None
    network_policy: Annotated[bool, Meta(description="Only the run's own pods reach its ports")] = True
    pod: Annotated[dict[str, Any], Meta(description="A merge patch for the spec of every pod")] = {}


class Engine(Block, frozen=True):
    """Where replicas run. Options of several engines may stand side by side; `--on NAME` picks one."""

    short: ClassVar[str | None] = "default"
    telling: ClassVar[bool] = True
    default: EngineName | None = None
    local: LocalOptions | None = None
    ssh: SshOptions | None = None
    kubernetes: KubernetesOptions | None = None
    jobset: KubernetesOptions | None = None
    tfjob: KubernetesOptions | None = None


class Warm(Block, frozen=True):
    """A process that has imported the framework already, from which replicas are forked on this machine."""

    modules: Annotated[
        tuple[ModuleName, ...], Meta(description="What it imports beside the framework: packages of the environment")
    ] = field(default=(), name="import")
    keep: Annotated[Seconds, Meta(description="How long it stays for the next run")] = 600.0


class Spec(Block, frozen=True):
    """What to train, by whom, where."""

    project: Annotated[Name, Meta(description="The project; prefixes everything that gets a name")]
    run: Annotated[Run | None, Meta(description="For every role that has no `run` of its own")] = None
    name: Annotated[Name | None, Meta(description="Of this run, instead of the project's")] = None
    framework: Framework = "tensorflow"
    tensorflow: TensorFlow = TensorFlow()
    environment: Annotated[
        Environment | None, Meta(description="Unless said, replicas run with the Python that launches them")
    ] = None
    roles: Roles = Roles()
    parameters: Annotated[
        dict[ParameterName, Scalar], Meta(description="Values for `{{ name }}`, also given as variables")
    ] = {}
    resources: Annotated[Resources, Meta(description="For every role that has none of its own")] = Resources()
    port: Annotated[
        Port | None, Meta(description="The first port, where replicas share an address; else the port of each")
    ] = None
    env: dict[Variable, Value] = {}
    workdir: Annotated[Path, Meta(description="Where commands run; the folder of this file unless said")] = "."
    output: Annotated[
        Path | None, Meta(description="The run's shared folder, given as OUTPUT_DIR; may contain `{{ run }}`")
    ] = None
    checkpoint: Annotated[
        Path | None, Meta(description="Kept across attempts, given as CHECKPOINT_DIR; may contain `{{ run }}`")
    ] = None
    data: Data | Annotated[tuple[Data, ...], Meta(min_length=1)] | None = None
    restart: Restart = Restart()
    timeouts: Timeouts = Timeouts()
    success: Annotated[Success | None, Meta(description="Who decides; unless said, the chief, else all workers")] = None
    tensorboard: Annotated[
        bool | None,
        Meta(description="Beside the run, on loopback; unless said, once a tensorflow run has written summaries"),
    ] = None
    engine: Engine = Engine()
    warm: Annotated[
        bool | Warm | None,
        Meta(description="Fork replicas from a process that has imported the framework; unless said, not for `plain`"),
    ] = None

    def with_parameters(self, parameters: dict[str, str]) -> Self:
        """The same spec with these parameters."""
        return structs.replace(self, parameters=parameters)

    def with_requirements(self, lines: tuple[str, ...]) -> Self:
        """The same spec with these lines as what its environment requires."""
        return structs.replace(self, environment=structs.replace(self.environment or Environment(), requirements=lines))

    def with_name(self, name: str) -> Self:
        """The same spec under this name."""
        return structs.replace(self, name=name)
