"""What only engines in clusters ask for: the image, volumes, and what the cluster wants of pods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from drumline.plan.engines import ON_CLUSTERS
from drumline.plan.name import variable_name
from drumline.record import Record
from drumline.spec import cluster as blocks
from drumline.spec import types
from drumline.spec.types import Spec

Path = tuple[str | int, ...]

_OPERATED = ("jobset", "tfjob")


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
        """Whether it has to be built before anybody can run."""
        return self.dockerfile is not None or self.base is not None


class Volume(Record):
    """A claim that is there, or the size of one that is made for the run and outlives it."""

    claim: str | None = None
    size_bytes: int | None = None
    storage_class: str | None = None
    access: str | None = None  # None: nobody said

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
    starts_whole: bool = False  # somebody there starts a line again, and only all of it
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
    run_as: int | None = None  # None: whoever the image says
    lost_seconds: float = 60.0  # that a node may be silent, as the cluster sees it, before its pods count as lost
    network_policy: bool = True
    pod: Mapping[str, object] = MappingProxyType({})
    pods: Mapping[str, Mapping[str, object]] = MappingProxyType({})  # the same for the pods of a role, and after it


def cluster_of(spec: Spec, engine: str) -> Cluster:
    """What the spec says for this engine."""
    own: blocks.KubernetesOptions | None = getattr(spec.engine, engine)
    options = own or spec.engine.kubernetes or blocks.KubernetesOptions()
    image = options.image or blocks.Image()
    return Cluster(
        starts_whole=engine in _OPERATED,
        context=options.context,
        namespace=options.namespace,
        image=Image(image.name, image.dockerfile, image.context or ".", image.base, image.install, image.registry),
        jobs=options.jobs,
        output=_volume(options.output) if options.output else None,
        output_at=_mount(spec.output),
        data={_variable(data): _volume(data.volume) for _, data in _data(spec) if data.volume},
        code=options.code,
        node_selector=options.node_selector,
        tolerations=tuple(_toleration(each) for each in options.tolerations),
        priority_class=options.priority_class,
        service_account=options.service_account,
        pull_secrets=options.pull_secrets,
        queue=options.queue,
        labels=options.labels,
        annotations=options.annotations,
        shm_bytes=options.shm,
        run_as=options.user,
        lost_seconds=options.lost,
        network_policy=options.network_policy,
        pod=options.pod,
        pods=_pods(spec),
    )


def located(cluster: Cluster, context: str | None, namespace: str | None, *, unique: str, user: str) -> Cluster:
    """The same, in this context and namespace, if they are given; for this user, with these letters in its names."""
    return cluster.replace(
        context=context or cluster.context, namespace=namespace or cluster.namespace, unique=unique, user=user
    )


def complaints(spec: Spec) -> Iterator[tuple[Path, str]]:
    """Everything about clusters that is impossible, with its path."""
    for path, data in _data(spec):
        if data.volume:
            yield from _about_volume((*path, "volume"), data.volume)
    for name in ON_CLUSTERS:
        options: blocks.KubernetesOptions | None = getattr(spec.engine, name)
        if options is None:
            continue
        path = ("engine", name)
        if options.image:
            yield from _about_image((*path, "image"), options.image)
        if options.output:
            yield from _about_volume((*path, "output"), options.output)
        for index, each in enumerate(options.tolerations):
            if each.key is None and (each.operator != "Exists" or each.value is not None):
                yield (*path, "tolerations", index), "give a `key`; only `operator: Exists` alone means every taint"
            elif each.operator == "Exists" and each.value is not None:
                yield (*path, "tolerations", index), "`Exists` has no `value`; leave one of them out"
        for key in options.labels:
            if key.startswith(("drumline.dev/", "app.kubernetes.io/managed-by")):
                yield (*path, "labels", key), "is set by drumline; choose another name"


def _about_image(path: Path, image: blocks.Image) -> Iterator[tuple[Path, str]]:
    given = [key for key in ("name", "dockerfile", "base") if getattr(image, key) is not None]
    if len(given) != 1:
        yield path, "give the name of an image, or a `dockerfile`, or a `base`, and only one of them"
        return
    if image.context is not None and image.dockerfile is None:
        yield (*path, "context"), "goes with a `dockerfile`; leave it out"
    if image.install and image.base is None:
        yield (*path, "install"), "goes with a `base`; leave it out"
    if image.registry is not None and image.name is not None:
        yield (*path, "registry"), "is where a built image goes; this one is there already"


def _about_volume(path: Path, volume: blocks.Volume) -> Iterator[tuple[Path, str]]:
    if (volume.claim is None) == (volume.size is None):
        yield path, "give either the `claim` that is there, or the `size` of one to be made"
    elif volume.claim is not None and volume.class_ is not None:
        yield (*path, "class"), "is for a claim that is made; this one is there already"


def _mount(output: str | None) -> str | None:
    """Of `/models/{{ run }}`, the part that is the same for every run."""
    if output is None or not output.startswith("/"):
        return None
    same, placeholder, _ = output.partition("{{")
    return (same.rpartition("/")[0] if placeholder else same) or None


def _volume(volume: blocks.Volume) -> Volume:
    return Volume(volume.claim, volume.size, volume.class_, volume.access)


def _toleration(each: blocks.Toleration) -> Toleration:
    operator = each.operator or ("Exists" if each.value is None else "Equal")
    return Toleration(each.key, operator, each.value, each.effect, each.seconds)


def _data(spec: Spec) -> Iterator[tuple[Path, types.Data]]:
    if isinstance(spec.data, types.Data):
        yield ("data",), spec.data
    else:
        yield from ((("data", index), data) for index, data in enumerate(spec.data or ()))


def _pods(spec: Spec) -> dict[str, Mapping[str, object]]:
    roles = spec.roles
    written = {
        "chief": roles.chief or roles.master,
        "worker": roles.worker,
        "ps": roles.ps,
        "evaluator": roles.evaluator,
    }
    return {name: role.pod for name, role in written.items() if role and role.pod}


def _variable(data: types.Data) -> str:
    return f"DATA_DIR_{variable_name(data.name)}" if data.name else "DATA_DIR"
