"""The block of the spec for clusters, which the engines `kubernetes`, `jobset` and `tfjob` share."""

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal, cast

from drumline.engine.kubernetes import plan_options
from drumline.engine.kubernetes.plan_options import Cluster
from drumline.engine.options import Flag, LaunchInput
from drumline.plan.codec import to_options
from drumline.plan.make import EnginePart, data_of, roles_of
from drumline.plan.rules import Path as At
from drumline.plan.rules import SpecProblem, about_volume
from drumline.spec.block import Block, Bytes, ObjectName, Path, Scalar, Seconds, Text, matching
from drumline.spec.struct import Meta, field, structs
from drumline.spec.types import Spec, Volume

# Names that the API of a cluster accepts.
_WORD = r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
Label = Annotated[
    str,
    matching(
        r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
        "a name of at most 63 small letters, digits and `-`, that begins and ends with a letter or a digit",
    ),
]
LabelKey = Annotated[
    str,
    matching(
        rf"^([a-z0-9]([a-z0-9.-]{{0,251}}[a-z0-9])?/)?{_WORD}$", "a label's name, such as team or example.com/team"
    ),
]
LabelValue = Annotated[str, matching(rf"^({_WORD})?$", "a label's value: at most 63 letters, digits, `-`, `_` and `.`")]


class Image(Block, frozen=True):
    """A container image: the name of an existing one, or what to build it from."""

    short: ClassVar[str | None] = "name"
    name: Text | None = None
    dockerfile: Annotated[Path | None, Meta(description="Your own file, to be built")] = None
    context: Annotated[Path | None, Meta(description="The build context; by default `.`")] = None
    base: Annotated[Text | None, Meta(description="An image to begin with; drumline writes the Dockerfile")] = None
    install: Annotated[tuple[Text, ...], Meta(description="What pip installs on top of the base")] = ()
    registry: Annotated[Text | None, Meta(description="Where a built image is pushed to")] = None


class Toleration(Block, frozen=True):
    """A taint of nodes that the pods tolerate, as in Kubernetes."""

    short: ClassVar[str | None] = "key"
    key: LabelKey | None = None
    operator: Annotated[
        Literal["Exists", "Equal"] | None, Meta(description="By default Equal with a value, else Exists")
    ] = None
    value: LabelValue | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    seconds: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Meta(description="How long, for NoExecute; by default without a limit"),
    ] = field(default=None, name="tolerationSeconds")


class KubernetesOptions(Block, frozen=True):
    """The cluster, the namespace, and options of pods."""

    context: Annotated[Text | None, Meta(description="A context of your kubeconfig; by default the current one")] = None
    namespace: Annotated[Label | None, Meta(description="By default that of the context")] = None
    image: Image | None = None
    jobs: Annotated[
        Literal["single", "indexed"], Meta(description="A Job for each replica, or an indexed one for each role")
    ] = "single"
    output: Annotated[Volume | None, Meta(description="Where OUTPUT_DIR is; by default in the pods")] = None
    code: Annotated[bool, Meta(description="Copy the project's folder into the pods")] = True
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
        Meta(description="The user id that the pods run as; by default that of the image"),
    ] = None
    lost: Annotated[Seconds, Meta(description="How long pods stay on a node that does not answer")] = 60.0
    network_policy: Annotated[bool, Meta(description="Only the run's own pods reach its ports")] = True
    pod: Annotated[dict[str, Any], Meta(description="A merge patch for the spec of every pod")] = {}


Options = KubernetesOptions
FLAGS = (
    Flag("context", "NAME", "The kubeconfig's context, instead of the spec's.", "clusters"),
    Flag("namespace", "NAME", "The cluster's namespace, instead of the spec's.", "clusters", letter="n"),
)

_SHARED = "kubernetes"  # its block is used for an engine without its own block
_OPERATED = ("jobset", "tfjob")  # an operator restarts all replicas together


def plan(spec: Spec, engine: str, given: LaunchInput) -> EnginePart:
    """Return the engine's part of a plan."""
    cluster = _cluster(spec, _options(spec, engine) or _options(spec, _SHARED) or KubernetesOptions())
    cluster = cluster.replace(
        context=given.flags.get("context") or cluster.context,
        namespace=given.flags.get("namespace") or cluster.namespace,
        unique=given.unique,
        user=given.user,
    )
    return EnginePart(
        to_options(cluster),
        where="the cluster",
        is_elsewhere=True,
        builds=cluster.image.is_built,  # the image is the environment
        restarts_whole=engine in _OPERATED,
    )


def problems(spec: Spec, engine: str) -> Iterator[SpecProblem]:
    """Yield the problems of the engine's block."""
    options = _options(spec, engine)
    if options is None:
        return
    path: At = ("engine", engine)
    if options.image:
        yield from _about_image((*path, "image"), options.image)
    if options.output:
        yield from about_volume((*path, "output"), options.output)
    for index, each in enumerate(options.tolerations):
        if each.key is None and (each.operator != "Exists" or each.value is not None):
            at = (*path, "tolerations", index)
            yield SpecProblem(at, "add a `key`; only `operator: Exists` without a value matches every taint")
        elif each.operator == "Exists" and each.value is not None:
            yield SpecProblem((*path, "tolerations", index), "`Exists` takes no `value`; remove one of them")
    for key in options.labels:
        if key.startswith(("drumline.dev/", "app.kubernetes.io/managed-by")):
            yield SpecProblem((*path, "labels", key), "is set by drumline; choose another name")


def _options(spec: Spec, engine: str) -> KubernetesOptions | None:
    return cast("KubernetesOptions | None", spec.engine.options(engine))


def _cluster(spec: Spec, options: KubernetesOptions) -> Cluster:
    image = structs.asdict(options.image or Image())
    own = {key: value for key, value in structs.asdict(options).items() if key not in ("shm", "user", "lost")}
    own |= {
        "image": plan_options.Image(**{**image, "context": image["context"] or "."}),
        "output": _volume(options.output) if options.output else None,
        "tolerations": tuple(_toleration(each) for each in options.tolerations),
    }
    return Cluster(
        **own,
        output_at=_mount(spec.output),
        data={name: _volume(data.volume) for name, data in data_of(spec).items() if data.volume},
        shm_bytes=options.shm,
        run_as=options.user,
        lost_seconds=options.lost,
        pods={name: role.pod for name, role in roles_of(spec).items() if role.pod},
    )


def _about_image(path: At, image: Image) -> Iterator[SpecProblem]:
    given = [key for key in ("name", "dockerfile", "base") if getattr(image, key) is not None]
    if len(given) != 1:
        yield SpecProblem(path, "set exactly one of `name`, `dockerfile` and `base`")
        return
    if image.context is not None and image.dockerfile is None:
        yield SpecProblem((*path, "context"), "is only used with a `dockerfile`; remove it")
    if image.install and image.base is None:
        yield SpecProblem((*path, "install"), "is only used with a `base`; remove it")
    if image.registry is not None and image.name is not None:
        yield SpecProblem((*path, "registry"), "is only used for images that are built; remove it")


def _mount(output: str | None) -> str | None:
    """Return the part of `/models/{{ run }}` that is the same for every run."""
    if output is None or not output.startswith("/"):
        return None
    same, placeholder, _ = output.partition("{{")
    return (same.rpartition("/")[0] if placeholder else same) or None


def _volume(volume: Volume) -> plan_options.Volume:
    return plan_options.Volume(volume.claim, volume.size, volume.class_, volume.access)


def _toleration(each: Toleration) -> plan_options.Toleration:
    operator = each.operator or ("Exists" if each.value is None else "Equal")
    return plan_options.Toleration(each.key, operator, each.value, each.effect, each.seconds)
