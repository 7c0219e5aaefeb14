"""The blocks of a spec for clusters, and what a cluster calls things."""

from typing import Annotated, Any, ClassVar, Literal

from drumline.spec.block import Block, Bytes, Path, Scalar, Seconds, Text
from drumline.spec.struct import Meta, field

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
    lost: Annotated[Seconds, Meta(description="How long a node that the cluster does not hear from keeps its pods")] = (
        60.0
    )
    network_policy: Annotated[bool, Meta(description="Only the run's own pods reach its ports")] = True
    pod: Annotated[dict[str, Any], Meta(description="A merge patch for the spec of every pod")] = {}
