"""The plan and what becomes of it: frozen values, addresses last."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Self

from drumline.record import Record

COMPUTING = ("chief", "worker")
ROLES = ("chief", "worker", "ps", "evaluator")

# What helps a line and is not of it: it has a name and no index.
_HELPER = r"build|prepare(-[A-Za-z0-9_-]{1,64})?|tensorboard"


def is_helper_name(text: str) -> bool:
    """Whether a run may have a helper of this name."""
    return re.fullmatch(_HELPER, text) is not None


class ReplicaId(Record):
    """A replica's place in the line; exactly its TF_CONFIG task. A helper has only its name, as its role."""

    role: str
    index: int

    def __lt__(self, other: Self) -> bool:
        return (self.role, self.index) < (other.role, other.index)

    def __str__(self) -> str:
        return self.role if self.is_helper else f"{self.role}.{self.index}"

    @property
    def is_helper(self) -> bool:
        """Whether it is no part of the line."""
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
    """A value taken from the environment of whoever launches, when a replica starts; never kept."""

    variable: str

    def __str__(self) -> str:
        return f"${{{self.variable}:?}}"


class Shared(Record):
    """A value with a long part that every replica's has in common.

    Ten thousand replicas repeat one cluster ten thousand times; the text is one object here, and whoever
    writes launches down may write it once under its name.
    """

    before: str
    name: str
    text: str
    after: str

    @property
    def length(self) -> int:
        """Of the whole; it is written in ASCII."""
        return len(self.before) + len(self.text) + len(self.after)

    def __str__(self) -> str:
        return f"{self.before}{self.text}{self.after}"


class Extended(Record):
    """A value in front of what these variables of whoever launches already have."""

    text: str
    separator: str
    variables: tuple[str, ...]

    @property
    def rest(self) -> str:
        """What follows the text, as a shell writes it."""
        return "".join(f"${{{name}:+{self.separator}${name}}}" for name in self.variables)

    def __str__(self) -> str:
        return f"{self.text}{self.rest}"


Value = str | Secret
LaunchValue = str | Secret | Shared | Extended


class Resources(Record):
    """What a replica claims; None is nothing claimed."""

    cpus: float | None = None
    memory_bytes: int | None = None
    gpus: int | None = None


class Replica(Record):
    """One process of the line, before anybody knows where."""

    id: ReplicaId
    name: str
    argv: tuple[str, ...]
    env: Mapping[str, Value]
    resources: Resources
    port: int | None = None
    port_fixed: bool = False


_MOST_SHOWN = 5  # requirements, where people read of them


class Environment(Record):
    """What replicas run in: what is installed, and the Pythons that would do, best first.

    None of these is the Python that launches; a path is that interpreter.
    """

    requirements: tuple[str, ...] = ()
    pythons: tuple[str, ...] = ()

    def __str__(self) -> str:
        python = " or ".join(self.pythons) or "the one that launches"
        first, more = self.requirements[:_MOST_SHOWN], len(self.requirements) - _MOST_SHOWN
        added = f", with {', '.join(first)}{f' and {more} more' if more > 0 else ''}" if first else ""
        return f"{python}, in an environment of its own{added}"

    @property
    def id(self) -> ReplicaId:
        """The helper that builds it."""
        return BUILD


class Preparation(Record):
    """A command that makes a data folder once, before any replica starts; the variable names the folder."""

    name: str
    variable: str
    path: str
    argv: tuple[str, ...]
    env: Mapping[str, Value]

    @property
    def id(self) -> ReplicaId:
        """The helper that it is."""
        return ReplicaId(self.name, 0)


class Data(Record):
    """A folder given to every replica, and the variable that names it."""

    variable: str
    path: str


class Restart(Record):
    """How often the line may start again, by class of failure, and how long it waits in between."""

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
    permanent_codes: tuple[str, ...] = ()  # `2`, `1-127`: after these nothing starts again

    @property
    def is_allowed(self) -> bool:
        """Whether a failure of any class may be followed by a restart."""
        return any((self.crash, self.lost, self.preempted, self.hang, self.rendezvous, self.out_of_memory, self.early))


class Timeouts(Record):
    """How long to wait, and for what; None is for ever."""

    start_seconds: float = 600.0
    rendezvous_seconds: float = 600.0
    grace_seconds: float = 10.0
    run_seconds: float | None = None
    progress_seconds: float | None = None
    steps_seconds: float | None = None  # without a step
    is_grace_set: bool = False  # in the spec; then it also applies where replicas could not use it


class Warm(Record):
    """What a warm process imports beside the framework, and how long it stays for the next run."""

    modules: tuple[str, ...] = ()
    keep_seconds: float = 600.0


class Plan(Record):
    """Who will run: every replica with its command, variables and resources; no addresses yet."""

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
    oversubscribe: bool = False  # claims are taken whatever there is
    warm: Warm | None = None  # fork replicas from a process that has imported the framework
    tensorboard: bool | None = False  # None: as soon as there is something that it could show
    options: Mapping[str, object] = MappingProxyType({})  # what JSON has; read by the engine alone
    where: str = "this machine"  # in words, the place that is reached before the run
    is_elsewhere: bool = False  # replicas run on other machines
    fetches_output: bool = False  # from there to this machine
    builds: bool = False  # a helper builds the environment or the image that replicas run in
    restarts_whole: bool = False  # the engine restarts all replicas or none

    @property
    def all_ids(self) -> tuple[ReplicaId, ...]:
        """All who have a process and a log: who help before the line, then the line; TensorBoard is beside them."""
        return (*self.helpers, *(each.id for each in self.replicas))

    @property
    def helpers(self) -> tuple[ReplicaId, ...]:
        """Who work before the line, in this order: what builds its environment or image, then what makes its data."""
        return (*((BUILD,) if self.builds else ()), *(each.id for each in self.preparations))

    def replicas_of(self, *roles: str) -> tuple[Replica, ...]:
        """The replicas of these roles, in the order of the line."""
        return tuple(replica for replica in self.replicas if replica.id.role in roles)

    @property
    def chief(self) -> ReplicaId | None:
        """Who coordinates: the chief, else worker 0."""
        # The first of the line in nearly every plan: nobody goes through ten thousand for each of ten thousand.
        return next((replica.id for replica in self.replicas if replica.id.role in COMPUTING), None)


class Place(Record):
    """Where one replica runs: how it is reached, where it works and writes, the cores and GPUs it may count on."""

    host: str
    port: int
    workdir: str
    output_dir: str
    checkpoint_dir: str
    cores: int | None = None
    data_dirs: tuple[str, ...] = ()
    python_dir: str | None = None  # to be put in front of PATH
    environment: str | None = None  # the folder of an environment of its own
    runtime: str | None = None  # where `drumline.runtime` lies for a Python that has no drumline
    runtime_on_path: bool = False  # PYTHONPATH has to name it: nothing else tells that Python
    gpus: tuple[str, ...] | None = None  # those that it sees; None leaves it to whoever launches
    gpus_shared: bool = False  # somebody else of the line sees the same
    domain: str | None = None  # `.digits-4`: where all of a line and nobody else is, so that a thousand have one name
    written: tuple[str, ...] = ()  # variables of the rendezvous that somebody there writes

    @property
    def address(self) -> str:
        """`host:port`, with the brackets that an IPv6 address needs."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


Placement = Mapping[ReplicaId, Place]


class Launch(Record):
    """A replica that can be started: its environment is complete, but for secrets."""

    replica: Replica
    attempt: int
    place: Place
    env: Mapping[str, LaunchValue]
    incarnation: int = 0  # which life of it in this attempt


class PreparationLaunch(Record):
    """A preparation that can be started: it fills `partial`, which becomes `path` once it is whole."""

    preparation: Preparation
    path: str
    partial: str
    workdir: str
    env: Mapping[str, LaunchValue]
