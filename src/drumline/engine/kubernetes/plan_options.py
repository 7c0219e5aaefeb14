"""What a plan says to the engines of clusters: the image, volumes, and what the cluster asks of pods."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from drumline.plan.codec import read_options, to_options
from drumline.plan.types import Plan
from drumline.record import Record


class Image(Record):
    """A container image by name; or, without one yet, what it is built from: a file of the user's, or a base."""

    name: str | None = None
    dockerfile: str | None = None
    context: str = "."
    base: str | None = None
    install: tuple[str, ...] = ()
    registry: str | None = None

    @property
    def is_built(self) -> bool:
        """Whether it has to be built before any replica can run."""
        return self.dockerfile is not None or self.base is not None


class Volume(Record):
    """A claim that is there, or the size of one that is made for the run and outlives it."""

    claim: str | None = None
    size_bytes: int | None = None
    storage_class: str | None = None
    access: str | None = None  # None: not said

    @property
    def is_shared(self) -> bool:
        """Whether pods of several nodes may write to it at the same time."""
        return self.access == "ReadWriteMany"


class Toleration(Record):
    """A taint that the pods put up with."""

    key: str | None = None
    operator: str = "Exists"
    value: str | None = None
    effect: str | None = None
    seconds: int | None = None


class Cluster(Record):
    """The cluster and what it is told.

    `unique` and `user` are chosen by the command that launches, and so are the same for every supervisor of a run.
    """

    unique: str = ""  # a few random letters that keep names of two runs apart; empty in what is rendered for a number
    user: str = ""
    kubeconfig: str | None = None  # the files that KUBECONFIG named at the launch
    context: str | None = None
    namespace: str | None = None
    image: Image = Image()
    jobs: str = "single"
    output: Volume | None = None
    output_at: str | None = None  # where in a pod it is to be, where `output` is an absolute path
    data: Mapping[str, Volume] = MappingProxyType({})  # by the variable that names the folder
    code: bool = True
    node_selector: Mapping[str, str] = MappingProxyType({})
    tolerations: tuple[Toleration, ...] = ()
    priority_class: str | None = None
    service_account: str | None = None
    pull_secrets: tuple[str, ...] = ()
    queue: str | None = None
    labels: Mapping[str, str] = MappingProxyType({})
    annotations: Mapping[str, str] = MappingProxyType({})
    shm_bytes: int | None = None
    run_as: int | None = None  # None: as the image says
    lost_seconds: float = 60.0  # that a node may be silent, as the cluster sees it, before its pods count as lost
    network_policy: bool = True
    pod: Mapping[str, object] = MappingProxyType({})
    pods: Mapping[str, Mapping[str, object]] = MappingProxyType({})  # the same for the pods of a role, and after it


def cluster_of(plan: Plan) -> Cluster:
    """Return what the plan says to the cluster."""
    return read_options(Cluster, plan.options)


def with_cluster(plan: Plan, cluster: Cluster) -> Plan:
    """Return the plan that says this to the cluster."""
    return plan.replace(options=to_options(cluster))
