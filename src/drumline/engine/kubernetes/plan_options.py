"""The engine options of a plan for clusters: the image, volumes, and options of pods."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from drumline.plan.codec import read_options, to_options
from drumline.plan.types import Plan
from drumline.record import Record


class Image(Record):
    """A container image by name, or what it is built from: a Dockerfile or a base."""

    name: str | None = None
    dockerfile: str | None = None
    context: str = "."
    base: str | None = None
    install: tuple[str, ...] = ()
    registry: str | None = None

    @property
    def is_built(self) -> bool:
        """Whether the image is built for the run."""
        return self.dockerfile is not None or self.base is not None


class Volume(Record):
    """An existing claim, or the size of one that is made for the run and outlives it."""

    claim: str | None = None
    size_bytes: int | None = None
    storage_class: str | None = None
    access: str | None = None

    @property
    def is_shared(self) -> bool:
        """Whether pods on several nodes can write to it."""
        return self.access == "ReadWriteMany"


class Toleration(Record):
    """A taint that the pods tolerate."""

    key: str | None = None
    operator: str = "Exists"
    value: str | None = None
    effect: str | None = None
    seconds: int | None = None


class Cluster(Record):
    """The cluster and the options of pods.

    `unique` and `user` are chosen at the launch, so that they are the same for every supervisor of a run.
    """

    unique: str = ""  # random letters that make the names of two runs distinct; empty in `render`
    user: str = ""
    kubeconfig: str | None = None  # KUBECONFIG at the launch
    context: str | None = None
    namespace: str | None = None
    image: Image = Image()
    jobs: str = "single"
    output: Volume | None = None
    output_at: str | None = None  # its mount path, if `output` is an absolute path
    data: Mapping[str, Volume] = MappingProxyType({})  # by variable
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
    run_as: int | None = None  # None: the image's user
    lost_seconds: float = 60.0  # that a node may be unreachable before its pods count as lost
    network_policy: bool = True
    pod: Mapping[str, object] = MappingProxyType({})
    pods: Mapping[str, Mapping[str, object]] = MappingProxyType({})  # patches by role, applied after `pod`


def cluster_of(plan: Plan) -> Cluster:
    """Return the cluster options of a plan."""
    return read_options(Cluster, plan.options)


def with_cluster(plan: Plan, cluster: Cluster) -> Plan:
    """Return the plan with these cluster options."""
    return plan.replace(options=to_options(cluster))
