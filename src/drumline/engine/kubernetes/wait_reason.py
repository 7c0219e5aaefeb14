"""Why a pod does not run yet: scheduling, image, volume, peers, quota or permission. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from drumline.engine.kubernetes.answer_fields import LONGEST_TEXT, mapping, mappings, text
from drumline.record import Record
from drumline.spec.quantity import parse_quantity
from drumline.words import listed, size

Pod = Mapping[str, Any]


class PodWaiting(Record):
    """The pod has not started; without a message there is nothing to report."""

    reason: str = ""  # one word: Unschedulable, Held, ImagePull, Config, Container, Volume, Init, Quota, Forbidden
    message: str = ""
    is_fatal: bool = False  # it cannot start any more
    is_usual: bool = False  # part of every start, reported only if it takes long


class PodEvent(Record):
    """The wait that an event reports of a pod, or of a controller that should have created one."""

    kind: str
    name: str
    wait: PodWaiting


_FATAL = {
    "InvalidImageName": "the name of its image is not valid",
    "ErrImageNeverPull": "its image is not on its node, and may not be pulled",
    "CreateContainerConfigError": "its container cannot be created",
}
_INIT_MESSAGE = "unpacks the project and waits for the names of its peers"
_UNBOUND = PodWaiting("Volume", "its claim is not bound to a volume")
_PULLING = ("ErrImagePull", "ImagePullBackOff", "RegistryUnavailable", "ImageInspectError")
_USUAL = ("ContainerCreating", "PodInitializing")

# `0/3 nodes are available: 1 Insufficient cpu, 2 node(s) were unschedulable. preemption: …`
_NODES = re.compile(
    r"^0/(\d+) nodes are available: (.*?)\.?(?: (?:not found|no new claims to deallocate).*| preemption: .*)?$",
    re.DOTALL,
)
_LACK = re.compile(r"^(\d+) Insufficient (\S+)$")
_NODE = re.compile(r"^(\d+) node\(s\) (.*)$")
_SCARCE = {
    "cpu": "too few free CPUs",
    "memory": "too little free memory",
    "ephemeral-storage": "too little free disk",
    "pods": "no room for more pods",
}
_OF_NODES = (
    ("didn't match Pod's node affinity/selector", "do not match its node selector", "does not match its node selector"),
    ("were unschedulable", "are closed to new pods", "is closed to new pods"),
    ("had untolerated taint", "have a taint that it does not tolerate", "has a taint that it does not tolerate"),
    ("had volume node affinity conflict", "cannot reach its volume", "cannot reach its volume"),
)
_CLAIM = re.compile(r'persistentvolumeclaim "([^"]+)" not found')
# Parts of a message that differ at every try, or have no information: the local port, the request.
_REQUEST = re.compile(r'^ErrImagePull: |^failed to do request: \w+ "[^"]*": |\b\d+\.\d+\.\d+\.\d+:\d+->')
_FORBIDDEN = re.compile(r'pods "[^"]*" is forbidden: (.*)$', re.DOTALL)
_QUOTA = re.compile(r"^exceeded quota: (\S+), requested: (.*), used: (.*), limited: (.*)$")


def read_wait(pod: Pod, main: str, trouble: PodWaiting | None) -> PodWaiting:
    """Return what a pod waits for if its main container does not run yet."""
    status = mapping(pod.get("status"))
    for each in mappings(status.get("conditions")):
        if each.get("type") == "PodScheduled" and each.get("status") == "False":
            return _not_scheduled(pod, text(each.get("reason")), text(each.get("message")), trouble)
    for each in mappings(status.get("initContainerStatuses")):
        state, name = mapping(each.get("state")), text(each.get("name"))
        if waiting := mapping(state.get("waiting")):
            return _container_wait(waiting, _image(pod, name), trouble)
        if "running" in state:
            words = _INIT_MESSAGE if name == "drumline" else f"its init container {name} is not done"
            return PodWaiting("Init", words, is_usual=True)
    for each in mappings(status.get("containerStatuses")):
        if each.get("name") == main and (waiting := mapping(mapping(each.get("state")).get("waiting"))):
            return _container_wait(waiting, _image(pod, main), trouble)
    return trouble or PodWaiting()


def trim_event(event: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the parts of an event that `read_event` uses; None if it ignores the event."""
    if read_event(event) is None:
        return None
    about = mapping(event.get("involvedObject"))
    reported = event.get("message")
    return {
        "reason": event.get("reason"),
        "message": reported[: 2 * LONGEST_TEXT] if isinstance(reported, str) else "",
        "involvedObject": {key: text(about.get(key)) for key in ("kind", "name", "uid")},
    }


def read_event(event: Mapping[str, Any]) -> PodEvent | None:
    """Return what an event reports beyond the status of a pod; None if it reports nothing more.

    Any user with the permission to create events can have written it, so it only explains a wait, and decides nothing.
    """
    about, reported = mapping(event.get("involvedObject")), text(event.get("message"))
    kind, name = text(about.get("kind")), text(about.get("name"))
    match event.get("reason"):
        case "FailedMount" | "FailedAttachVolume":
            return PodEvent(kind, name, PodWaiting("Volume", f"a volume cannot be mounted: {reported}"))
        case "ProvisioningFailed":
            return PodEvent(kind, name, PodWaiting("Volume", f"the claim {name} gets no volume: {reported}"))
        case "FailedCreatePodSandBox":
            return PodEvent(kind, name, PodWaiting("Container", f"its pod cannot be set up: {reported}"))
        case "Pulling" if kind == "Pod":
            return PodEvent(kind, name, PodWaiting("ImagePull", "pulls its image", is_usual=True))
        case "Pulled" | "Created" | "Started" if kind == "Pod":
            return PodEvent(kind, name, PodWaiting())
        case "FailedCreate" | "FailedCreatePod":
            found = _FORBIDDEN.search(reported)
            return PodEvent(kind, name, _not_created(found[1] if found else reported.rpartition("Error creating: ")[2]))
    return None


def memory_limit(pod: Pod, container: str) -> int | None:
    """Return the memory limit of a container in bytes."""
    limits = mapping(mapping(_container(pod, container).get("resources")).get("limits"))
    amount = parse_quantity(limits.get("memory"))
    return None if amount is None else round(amount)


def _not_scheduled(pod: Pod, reason: str, reported: str, trouble: PodWaiting | None) -> PodWaiting:
    if reason == "SchedulingGated":
        gates = [text(each.get("name")) for each in mappings(mapping(pod.get("spec")).get("schedulingGates"))]
        return PodWaiting("Held", f"held back by {listed(gates)}" if gates else "held back")
    found = _NODES.match(reported)
    if not found:
        return PodWaiting("Unschedulable", reported or "not scheduled yet", is_usual=not reported)
    if claim := _CLAIM.search(reported):
        return PodWaiting("Volume", f"its claim {claim[1]} does not exist")
    if "unbound immediate PersistentVolumeClaims" in reported:
        return trouble if trouble and trouble.reason == "Volume" else _UNBOUND
    why = listed([_node_words(each) for each in found[2].split(", ")])
    asks = _asks(pod)
    return PodWaiting(
        "Unschedulable", f"none of {found[1]} nodes can run it: {why}{f'; it asks for {asks}' if asks else ''}"
    )


def _node_words(reported: str) -> str:
    """Return why nodes cannot run a pod: `2 have too few free CPUs`, `1 is closed to new pods`."""
    if lack := _LACK.match(reported):
        has = "has" if lack[1] == "1" else "have"
        return f"{lack[1]} {has} {_SCARCE.get(lack[2], f'too few free {lack[2]}')}"
    if node := _NODE.match(reported):
        for theirs, several, one in _OF_NODES:
            if node[2].startswith(theirs):
                rest = node[2].removeprefix(theirs).removeprefix("(s)")
                return f"{node[1]} {one if node[1] == '1' else several}{rest}"
    return reported


def _asks(pod: Pod) -> str:
    """Return what the containers request: `4 CPUs, 16.0 GiB of memory and 2 nvidia.com/gpu`."""
    total: dict[str, float] = {}
    for each in mappings(mapping(pod.get("spec")).get("containers")):
        for resource, amount in mapping(mapping(each.get("resources")).get("requests")).items():
            total[resource] = total.get(resource, 0.0) + (parse_quantity(amount) or 0.0)
    return listed([_amount(resource, number) for resource, number in total.items()])


def _amount(resource: str, number: float) -> str:
    match resource:
        case "cpu":
            return f"{number:g} CPU{'' if number == 1 else 's'}"
        case "memory":
            return f"{size(round(number))} of memory"
        case "ephemeral-storage":
            return f"{size(round(number))} of disk"
    return f"{number:g} {resource}"


def _container_wait(waiting: Mapping[str, Any], image: str, trouble: PodWaiting | None) -> PodWaiting:
    """Return what a container of a scheduled pod waits for."""
    reason, reported = text(waiting.get("reason")), text(waiting.get("message"), longest=4 * LONGEST_TEXT)
    if reason in _FATAL:
        wait = "Config" if reason == "CreateContainerConfigError" else "ImagePull"
        return PodWaiting(wait, f"{_FATAL[reason]}: {reported or image}", is_fatal=True)
    if reason in _PULLING:
        # The registry's message is at the end, after prefixes that repeat the image's full name.
        _, *of_registry = re.split(rf'"[^"]*{re.escape(image)}": ', reported)
        why = _REQUEST.sub("", of_registry[-1]) if of_registry else ""
        return PodWaiting("ImagePull", f"its image {image} cannot be pulled" + (f": {why}" if why else ""))
    if reason in _USUAL or not reason:
        return trouble or PodWaiting()
    return PodWaiting("Container", f"its container cannot be created ({reason}): {reported}" if reported else reason)


def _not_created(why: str) -> PodWaiting:
    """Return why a pod cannot be created."""
    if quota := _QUOTA.match(why):
        name, wanted, used, limit = quota.groups()
        return PodWaiting("Quota", f"it exceeds the quota {name}: it asks for {wanted}; used {used} of {limit}")
    return PodWaiting("Quota" if "quota" in why else "Forbidden", f"its pod may not be created: {why}")


def _image(pod: Pod, container: str) -> str:
    return text(_container(pod, container).get("image"))


def _container(pod: Pod, name: str) -> Mapping[str, Any]:
    spec = mapping(pod.get("spec"))
    several = (*mappings(spec.get("containers")), *mappings(spec.get("initContainers")))
    return next((each for each in several if each.get("name") == name), {})
