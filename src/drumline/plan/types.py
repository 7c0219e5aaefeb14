"""The values of plans, placements and launches."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Self

from drumline.record import Record

COMPUTING = ("chief", "worker")
ROLES = ("chief", "worker", "ps", "evaluator")

# Helpers of a run, which have a name and no index.
_HELPER = r"build|prepare(-[A-Za-z0-9_-]{1,64})?|tensorboard"


def is_helper_name(text: str) -> bool:
    """Return whether a run may have a helper of this name."""
    return re.fullmatch(_HELPER, text) is not None


class ReplicaId(Record):
    """The role and index of a replica, as in the task of TF_CONFIG. The id of a helper has its name as the role."""

    role: str
    index: int

    def __lt__(self, other: Self) -> bool:
        return (self.role, self.index) < (other.role, other.index)

    def __str__(self) -> str:
        return self.role if self.is_helper else f"{self.role}.{self.index}"

    @property
    def is_helper(self) -> bool:
        """Return whether the id is of a helper, and not of a replica."""
        return self.role not in ROLES

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `worker.0` or a helper's name; raise ValueError for anything else."""
        if is_helper_name(text):
            return cls(text, 0)
        role, _, index = text.partition(".")
        if role not in ROLES or not re.fullmatch(r"0|[1-9][0-9]{0,8}", index):
            raise ValueError(text)
        return cls(role, int(index))


TENSORBOARD = ReplicaId("tensorboard", 0)
BUILD = ReplicaId("build", 0)


class Secret(Record):
    """A variable of the launching environment; its value is read when a replica starts, and never stored."""

    variable: str

    def __str__(self) -> str:
        return f"${{{self.variable}:?}}"


class Shared(Record):
    """A value with a long part that is the same for all replicas.

    The common text is one object, even for ten thousand replicas. An engine can write it once, as the variable `name`.
    """

    before: str
    name: str
    text: str  # the common part
    after: str

    @property
    def length(self) -> int:
        """Return the length of the whole value in bytes; it is ASCII."""
        return len(self.before) + len(self.text) + len(self.after)

    def __str__(self) -> str:
        return f"{self.before}{self.text}{self.after}"


class Extended(Record):
    """A text that is put in front of the values that these variables have in the launching environment."""

    text: str
    separator: str
    variables: tuple[str, ...]

    @property
    def rest(self) -> str:
        """Return the part after `text` in shell syntax."""
        return "".join(f"${{{name}:+{self.separator}${name}}}" for name in self.variables)

    def __str__(self) -> str:
        return f"{self.text}{self.rest}"


Value = str | Secret
LaunchValue = str | Secret | Shared | Extended


class Resources(Record):
    """The resources that a replica claims; None is no claim."""

    cpus: float | None = None
    memory_bytes: int | None = None
    gpus: int | None = None


class Replica(Record):
    """One replica, before it is placed."""

    id: ReplicaId
    name: str
    argv: tuple[str, ...]
    env: Mapping[str, Value]
    resources: Resources
    port: int | None = None
    port_fixed: bool = False


_MOST_SHOWN = 5  # requirements that are shown


class Environment(Record):
    """The environment of replicas: requirements, and acceptable Pythons."""

    requirements: tuple[str, ...] = ()
    pythons: tuple[str, ...] = ()  # versions or paths, best first; empty: the Python that launches the run

    def __str__(self) -> str:
        python = " or ".join(self.pythons) or "the one that launches"
        first, more = self.requirements[:_MOST_SHOWN], len(self.requirements) - _MOST_SHOWN
        added = f", with {', '.join(first)}{f' and {more} more' if more > 0 else ''}" if first else ""
        return f"{python}, in an environment of its own{added}"

    @property
    def id(self) -> ReplicaId:
        """Return the id of the helper that builds the environment."""
        return BUILD


class Preparation(Record):
    """A command that creates a data folder once, before any replica starts; `variable` names the folder."""

    name: str
    variable: str
    path: str
    argv: tuple[str, ...]
    env: Mapping[str, Value]

    @property
    def id(self) -> ReplicaId:
        """Return the id of the helper that runs the command."""
        return ReplicaId(self.name, 0)


class Data(Record):
    """A data folder of all replicas, and the environment variable that has its path."""

    variable: str
    path: str


class Restart(Record):
    """Restart budgets by failure class, and the delays between restarts."""

    crash: int = 0
    lost: int = 0
    preempted: int = 0
    hang: int = 0
    rendezvous: int = 0
    out_of_memory: int = 0
    early: int = 0
    backoff_initial_seconds: float = 1.0
    backoff_factor: float = 2.0
    backoff_maximum_seconds: float = 300.0
    permanent_codes: tuple[str, ...] = ()  # `2`, `1-127`: no restart after these

    @property
    def is_allowed(self) -> bool:
        """Return whether any failure class has a budget."""
        return any((self.crash, self.lost, self.preempted, self.hang, self.rendezvous, self.out_of_memory, self.early))


class Timeouts(Record):
    """Time limits; None is no limit."""

    start_seconds: float = 600.0
    rendezvous_seconds: float = 600.0
    grace_seconds: float = 10.0
    run_seconds: float | None = None
    progress_seconds: float | None = None
    steps_seconds: float | None = None  # the longest time without a step
    is_grace_set: bool = False  # the spec sets the grace; then it also applies to replicas that could not use it


class Warm(Record):
    """The modules that a warm process imports beside the framework, and how long it is kept for the next run."""

    modules: tuple[str, ...] = ()
    keep_seconds: float = 600.0


class Plan(Record):
    """All replicas of a run with their commands, variables and resources; without addresses."""

    run: str
    project: str
    name: str
    framework: str
    engine: str
    replicas: tuple[Replica, ...]
    success: str
    workdir: str = "."
    output: str | None = None
    checkpoint: str | None = None
    parameters: Mapping[str, str] = MappingProxyType({})
    data: tuple[Data, ...] = ()
    environment: Environment | None = None
    preparations: tuple[Preparation, ...] = ()
    restart: Restart = Restart()
    timeouts: Timeouts = Timeouts()
    tf_config_always: bool = False
    evaluator_in_cluster: bool = False
    torch_rendezvous_always: bool = False
    oversubscribe: bool = False  # claims may exceed what the machine has
    warm: Warm | None = None  # fork replicas from a process that has imported the framework
    tensorboard: bool | None = False  # None: started when summaries exist
    options: Mapping[str, object] = MappingProxyType({})  # JSON data; read only by the engine
    where: str = "this machine"  # where replicas run, as text for users
    is_elsewhere: bool = False  # replicas run on other machines
    fetches_output: bool = False  # output is copied from other machines to this one
    builds: bool = False  # a helper builds the environment or the image that replicas run in
    restarts_whole: bool = False  # the engine restarts all replicas or none

    @property
    def all_ids(self) -> tuple[ReplicaId, ...]:
        """Return the ids of all helpers and replicas, in the order in which they run; without TensorBoard."""
        return (*self.helpers, *(each.id for each in self.replicas))

    @property
    def helpers(self) -> tuple[ReplicaId, ...]:
        """Return the helpers in the order in which they run: the build, then the preparations of data."""
        return (*((BUILD,) if self.builds else ()), *(each.id for each in self.preparations))

    def replicas_of(self, *roles: str) -> tuple[Replica, ...]:
        """Return the replicas of these roles, in the order of the plan."""
        return tuple(replica for replica in self.replicas if replica.id.role in roles)

    @property
    def chief(self) -> ReplicaId | None:
        """Return the replica that coordinates: the chief, else worker 0."""
        # It is nearly always the first replica. The search must be short: it is done for each of ten thousand replicas.
        return next((replica.id for replica in self.replicas if replica.id.role in COMPUTING), None)


class Place(Record):
    """The place of one replica: its address, its folders, its cores and GPUs."""

    host: str
    port: int
    workdir: str
    output_dir: str
    checkpoint_dir: str
    cores: int | None = None
    data_dirs: tuple[str, ...] = ()
    python_dir: str | None = None  # a folder that is put in front of PATH
    environment: str | None = None  # the folder of the environment that drumline has built
    runtime: str | None = None  # the folder of `drumline.runtime`, for a Python without drumline
    runtime_on_path: bool = False  # `runtime` has to be in PYTHONPATH
    gpus: tuple[str, ...] | None = None  # the GPUs that the replica sees; None: as in the launching environment
    gpus_shared: bool = False  # other replicas of the run use the same GPUs
    domain: str | None = None  # `.digits-4`: the DNS domain of all replicas of the run
    written: tuple[str, ...] = ()  # variables of the rendezvous that the system there sets itself

    @property
    def address(self) -> str:
        """Return `host:port`, with brackets around an IPv6 address."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


Placement = Mapping[ReplicaId, Place]


class Launch(Record):
    """A replica that can be started: its environment is complete, except for secrets."""

    replica: Replica
    attempt: int
    place: Place
    env: Mapping[str, LaunchValue]
    incarnation: int = 0  # in this attempt


class PreparationLaunch(Record):
    """A preparation that can be started: it fills `partial`, which becomes `path` when it is complete."""

    preparation: Preparation
    path: str
    partial: str
    workdir: str
    env: Mapping[str, LaunchValue]
