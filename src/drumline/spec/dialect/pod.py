"""Read a pod template: the values that a role of a spec has keys for, and a patch with the others."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from drumline.record import Record
from drumline.spec.dialect.draft import LocatedValue, SpecDraft, node_of, plain
from drumline.spec.dialect.tracked_node import TrackedNode, warn_unread
from drumline.spec.location import Location
from drumline.spec.quantity import format_bytes

MAIN = "tensorflow"
REPLICA = "replica"  # the name of the main container in drumline's pods
PORT = "tfjob-port"
GPU = "nvidia.com/gpu"

_OWN_VOLUMES = re.compile(r"output|parts|code|shm|data-\d+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REFERENCE = re.compile(r"\$(\$|\(([A-Za-z_][\w.-]*)\))")
_OWN_VARIABLES = re.compile(r"OUTPUT_DIR|CHECKPOINT_DIR|DATA_DIR(_\w+)?|DRUMLINE_\w+")
# Without a `command`, the command of the image runs; there is no image on this machine.
IMAGE_COMMAND = (
    "echo 'drumline: no command is given, and the image with its command is used in a cluster only' >&2; exit 126"
)

Json = dict[str, Any]


class Mount(Record):
    """A claim and the path at which a container mounts it; `plain` if the mount has no other options."""

    claim: str
    path: str
    volume: str
    plain: bool
    location: Location


class Pod(Record):
    """A pod template: values for the keys of a role, each with its location, and a patch with the others."""

    image: TrackedNode
    values: dict[str, LocatedValue]  # run, env, resources, port
    patch: Json
    mounts: tuple[Mount, ...]
    grace: TrackedNode | None
    has_sidecars: bool
    location: Location
    scheduling: tuple[TrackedNode, ...] = ()  # affinity and topology spread constraints


def read_pod(template: TrackedNode, draft: SpecDraft, *, policy_counts: bool = False) -> Pod:
    """Read the spec of a pod. What a role has no key for is in the patch, or becomes a warning.

    `policy_counts`: the pod's own restart policy is used; otherwise a warning states that it is ignored.
    """
    spec = template.require("spec")
    containers = spec.require("containers").items()
    named: dict[str, TrackedNode] = {}
    for each in containers:
        with draft.collecting_problems():
            if named.setdefault(each.require("name").text(), each) is not each:
                raise each.require("name").error("is the name of two containers")
            each.require("image")
    if MAIN not in named:
        raise spec.require("containers").error(f"has no container called `{MAIN}`, the one that trains")
    main = named.pop(MAIN)
    values, own = _Container(main, draft).read()
    patch: Json = {}
    if (policy := spec.read("restartPolicy")) and not policy_counts:
        draft.warn(policy.location, "is ignored, as by the operator: the restart policy of the replicas counts")
    scheduling = tuple(part for key in ("affinity", "topologySpreadConstraints") if (part := spec.read(key)))
    patch |= {str(part.location.path[-1]): part.node for part in (*scheduling, *spec.unread())}
    mounts, grace = claim_mounts(spec, main), spec.read("terminationGracePeriodSeconds")
    _check_mounts(spec, named.values())
    if own or named:
        patch["containers"] = [{"name": REPLICA, **own}] if own else []
        patch["containers"] += [each.node for each in named.values()]
    for each in named.values():
        draft.warn(each.location, "runs beside the replica in a cluster, not on this machine")
    return Pod(
        main.require("image"), values, _without_clashes(patch), mounts, grace, bool(named), spec.location, scheduling
    )


def without_mount(patch: Json, mount: Mount) -> Json:
    """Return the patch without the volume of a mount that the spec itself describes."""
    patched = {**patch}
    names = (mount.volume, f"own-{mount.volume}")
    patched["volumes"] = [each for each in _plain(patch.get("volumes")) or [] if each.get("name") not in names]
    containers = []
    for each in _plain(patch.get("containers")) or []:
        inside = [place for place in each.get("volumeMounts") or [] if place.get("name") not in names]
        rest = {key: value for key, value in each.items() if key != "volumeMounts"}
        containers.append({**rest, "volumeMounts": inside} if inside else rest)
    patched["containers"] = [each for each in containers if len(each) > 1]
    return {key: value for key, value in patched.items() if value or key not in ("volumes", "containers")}


class _Container:
    """Translates the container that trains to the values of a role."""

    def __init__(self, part: TrackedNode, draft: SpecDraft) -> None:
        self.part = part
        self.draft = draft
        self.values: dict[str, LocatedValue] = {}
        self.own: Json = {}
        self.known: dict[str, str] = {}

    def read(self) -> tuple[dict[str, LocatedValue], Json]:
        for read in (self.variables, self.command, self.ports, self.resources):
            with self.draft.collecting_problems():
                read()
        self.own |= {str(part.location.path[-1]): part.node for part in self.part.unread()}
        return self.values, self.own

    def command(self) -> None:
        command, arguments = self.part.read("command"), self.part.read("args")
        words = [self.expand(word) for each in (command, arguments) if each for word in each.items()]
        if command:
            self.values["run"] = {"argv": words}, command.location
            return
        location = arguments.location if arguments else self.part.location
        self.draft.warn(
            location, "has no `command`: a cluster runs the command of the image, this machine has none to run"
        )
        self.values["run"] = IMAGE_COMMAND, location
        self.own |= {"command": None, "args": words or None}

    def expand(self, word: TrackedNode) -> str:
        """Return an argument with its references to variables expanded, as Kubernetes does."""

        def value(match: re.Match[str]) -> str:
            if match[1] == "$":
                return "$"
            if match[2] not in self.known:
                self.draft.warn(word.location, f"`{match[0]}` is not known on this machine and is not expanded")
            return self.known.get(match[2], match[0])

        return _REFERENCE.sub(value, word.text())

    def variables(self) -> None:
        variables = self.part.read("env")
        env: Json = {}
        elsewhere: list[object] = []
        for each in variables.items() if variables else ():
            with self.draft.collecting_problems():
                self.variable(each, env, elsewhere)
        if variables and env:
            self.values["env"] = env, variables.location
        if elsewhere:
            self.own["env"] = elsewhere

    def variable(self, each: TrackedNode, env: Json, elsewhere: list[object]) -> None:
        """Add a variable to `env`, or to `elsewhere` if only a cluster has its value."""
        name, value = each.require("name"), each.read("value")
        if name.text() in env:
            self.draft.warn(
                each.location, f"`{name.text()}` appears a second time; as in Kubernetes, the last one is used"
            )
        if name.text() == "TF_CONFIG":
            self.draft.warn(each.location, "is not carried over: drumline writes TF_CONFIG itself")
        elif each.read("valueFrom") or not _VARIABLE.fullmatch(name.text()):
            self.draft.warn(each.location, f"`{name.text()}` is set in a cluster, not on this machine")
            elsewhere.append(each.node)
        else:
            text = self.expand(value) if value else ""
            self.known[name.text()] = text
            env[name.text()] = {"value": text, "override": True} if _OWN_VARIABLES.fullmatch(name.text()) else text
            warn_unread(self.draft, each)

    def ports(self) -> None:
        ports = self.part.read("ports")
        for each in ports.items() if ports else ():
            with self.draft.collecting_problems():
                self.port(each)

    def port(self, each: TrackedNode) -> None:
        """Read the port of the rendezvous; warn about any other, which need not be declared."""
        name, port = each.read("name"), each.require("containerPort")
        each.read("protocol")
        if name and name.text() == PORT:
            self.values["port"] = port.integer(), port.location
        else:
            self.draft.warn(each.location, f"port {port.text()} is not declared: it can be reached without")
        warn_unread(self.draft, each)

    def resources(self) -> None:
        """Read the resources: one number for request and limit; if they differ, the request is in the patch."""
        part = self.part.read("resources")
        if part is None:
            return
        limits, requests = part.read("limits"), part.read("requests")
        own: Json = {}
        patch: Json = {}
        for key, ours in (("cpu", "cpus"), ("memory", "memory"), (GPU, "gpus")):
            limit, request = (each.read(key) if each else None for each in (limits, requests))
            given = [each for each in (limit, request) if each]
            numbers: list[float] = []
            for each in given:
                with self.draft.collecting_problems():
                    numbers.append(each.quantity())
            if not numbers or len(numbers) < len(given):
                continue
            own[ours] = _amount(ours, numbers[0])
            if request and len(set(numbers)) > 1:
                patch.setdefault("requests", {})[key] = request.node
            elif limit is None and ours != "gpus":
                patch.setdefault("limits", {})[key] = None
        for kind, place in (("limits", limits), ("requests", requests)):
            for rest in place.unread() if place else ():
                patch.setdefault(kind, {})[str(rest.location.path[-1])] = rest.node
        patch |= {str(rest.location.path[-1]): rest.node for rest in part.unread()}
        if own:
            self.values["resources"] = own, part.location
        if patch:
            self.own["resources"] = patch


def _amount(ours: str, number: float) -> object:
    if ours == "memory":
        return format_bytes(max(1, int(number)))
    return int(number) if number == int(number) else round(number, 3)


def claim_mounts(spec: TrackedNode, container: TrackedNode) -> tuple[Mount, ...]:
    """Return the claims that a container mounts."""
    volumes = spec.read("volumes")
    claims: dict[str, tuple[str, bool]] = {}
    for each in volumes.items() if volumes else ():
        if claim := each.read("persistentVolumeClaim"):
            name = each.require("name").text()
            claims[name] = claim.require("claimName").text(), claim.is_read and each.is_read
    places = container.read("volumeMounts")
    return tuple(
        Mount(claims[name][0], each.require("mountPath").text(), name, claims[name][1] and each.is_read, each.location)
        for each in (places.items() if places else ())
        if (name := each.require("name").text()) in claims
    )


def _check_mounts(spec: TrackedNode, others: Iterable[TrackedNode]) -> None:
    """Raise SpecError for a volume without a name, or a mount without one in a container beside the replica."""
    volumes, before = spec.read("volumes"), spec.read("initContainers")
    named = list(volumes.items()) if volumes else []
    for container in (*others, *(before.items() if before else ())):
        mounts = container.read("volumeMounts")
        named += mounts.items() if mounts else []
    for each in named:
        each.require("name").text()


def _without_clashes(patch: Json) -> Json:
    """Return the patch with other names for volumes that are named as drumline's."""
    volumes = _plain(patch.get("volumes")) or []
    clashing = {each["name"] for each in volumes if _OWN_VOLUMES.fullmatch(str(each.get("name", "")))}
    if not clashing:
        return patch

    def renamed(each: Json) -> Json:
        return {**each, "name": f"own-{each['name']}"} if each.get("name") in clashing else each

    def with_mounts(each: Json) -> Json:
        mounts = [renamed(place) for place in each.get("volumeMounts") or []]
        return {**each, "volumeMounts": mounts} if mounts else each

    changed = {**patch, "volumes": [renamed(each) for each in volumes]}
    for key in ("containers", "initContainers"):
        if key in patch:
            changed[key] = [with_mounts(each) for each in _plain(patch[key]) or []]
    return changed


def _plain(value: object) -> Any:
    """Return plain data for a value that may contain nodes; None for None."""
    return None if value is None else plain(node_of(value, 0))
