"""What a pod's status means: that it waits and for what, that it runs, or how it has ended. Pure.

A pod is the plain mapping that the API server gives.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from signal import Signals
from typing import Any

from drumline.engine.kubernetes.answer_fields import integer, mapping, mappings, seconds_of, text
from drumline.engine.kubernetes.wait_reason import PodWaiting, memory_limit, read_wait
from drumline.record import Record
from drumline.run.event import Exit
from drumline.words import size

Pod = Mapping[str, Any]

# Behind the moment by which a deleted pod should have gone, so long a live kubelet may take to say that it has.
CONFIRM_SECONDS = 30.0

_MAIN = ("replica", "tensorflow")  # the operator of TFJobs wants its own name
_NOT_EXECUTED = ("StartError", "ContainerCannotRun", "RunContainerError")
_NOT_FOUND = re.compile(r"executable file not found|no such file or directory")
_RUNTIME = re.compile(r"^.*unable to start container process: (?:error during container init: )?|: unknown$", re.DOTALL)
_ENDED_BY_SIGNAL = (128 + Signals.SIGKILL, 128 + Signals.SIGTERM)


class PodRunning(Record):
    """Its command runs, or nobody says otherwise; at `overdue_at` (UTC) it is to be looked at again."""

    started_at: float | None = None  # UTC, a whole second
    overdue_at: float | None = None  # it is to go, and is taken for lost if it has not by then


class PodEnded(Record):
    """It has ended, or nobody will ever say how."""

    exit: Exit
    ended_at: float | None = None  # UTC, a whole second; None if nobody saw it
    container: str | None = None  # whose log says why; None if none ever ran


PodStatus = PodWaiting | PodRunning | PodEnded


def read_pod_status(
    pod: Pod, *, now: float, deleted: bool = False, asked: bool = False, trouble: PodWaiting | None = None
) -> PodStatus:
    """Say where a pod stands at this time (UTC).

    `deleted`: the API server does not have it any more, and this is how it was last. `asked`: whoever asks has stopped
    it, so that its deletion is nothing to tell. `trouble`: what an event said of it, for what its status does not say.
    """
    status = mapping(pod.get("status"))
    name = main_container(pod)
    main = _state(pod, name)
    # A kubelet may have started it again since: an operator's pods say so, and no line survives that.
    if over := mapping(main.get("terminated")) or mapping(_state(pod, name, "lastState").get("terminated")):
        return _ended(pod, over, name, asked=asked)
    if failed := _failed_init(pod):
        return _init_ended(pod, *failed, asked=asked)
    overdue_at = _overdue_at(pod)
    # Without a node, whoever is to go has nobody to end it, and is not looked at by the scheduler any more.
    is_nowhere = overdue_at is not None and not mapping(pod.get("spec")).get("nodeName")
    if (
        status.get("phase") in ("Failed", "Succeeded")
        or is_nowhere
        or deleted
        or (overdue_at is not None and now >= overdue_at)
    ):
        return PodEnded(_unseen(pod, asked=asked, deleted=deleted), container=_last_container(pod))
    if running := mapping(main.get("running")):
        return PodRunning(seconds_of(running.get("startedAt")), overdue_at)
    if overdue_at is not None:
        return PodRunning(None, overdue_at)
    return read_wait(pod, name, trouble)


def main_container(pod: Pod) -> str:
    """The container that runs the replica's command."""
    names = [str(each.get("name")) for each in mappings(mapping(pod.get("spec")).get("containers"))]
    return next((name for name in names if name in _MAIN), names[0] if names else _MAIN[0])


def started_at(pod: Pod) -> float | None:
    """When its command began (UTC); None if it has not, or nobody says."""
    state = _state(pod, main_container(pod))
    return seconds_of((mapping(state.get("running")) or mapping(state.get("terminated"))).get("startedAt"))


def has_run(pod: Pod, container: str) -> bool:
    """Whether the replica's own container has begun; of the one before it, that it is spoken of says so."""
    return container != main_container(pod) or started_at(pod) is not None


def is_unreachable(pod: Pod) -> bool:
    """Whether its node does not answer, as the cluster finds: it takes back that the pod is ready, and nothing else."""
    conditions = {str(each.get("type")): each.get("status") for each in _conditions(pod)}
    return conditions.get("Ready") == "False" and conditions.get("ContainersReady") == "True"


def is_over(pod: Pod) -> bool:
    """Whether nothing runs in it any more; its phase says so a little later."""
    states = [mapping(each.get("state")) for each in _statuses(pod)]
    are_over = bool(states) and all("terminated" in each for each in states)
    return are_over or mapping(pod.get("status")).get("phase") in ("Failed", "Succeeded")


def is_terminating(pod: Pod) -> bool:
    """Whether somebody has deleted it."""
    return bool(mapping(pod.get("metadata")).get("deletionTimestamp"))


def _conditions(pod: Pod) -> list[Mapping[str, Any]]:
    return mappings(mapping(pod.get("status")).get("conditions"))


def _statuses(pod: Pod, which: str = "containerStatuses") -> list[Mapping[str, Any]]:
    return mappings(mapping(pod.get("status")).get(which))


def _state(pod: Pod, container: str, which: str = "state") -> Mapping[str, Any]:
    for each in _statuses(pod):
        if each.get("name") == container:
            return mapping(each.get(which))
    return {}


def _failed_init(pod: Pod) -> tuple[str, Mapping[str, Any]] | None:
    for each in _statuses(pod, "initContainerStatuses"):
        over = mapping(mapping(each.get("state")).get("terminated"))
        if over.get("exitCode"):
            return text(each.get("name")), over
    return None


def _last_container(pod: Pod) -> str | None:
    """Of a pod whose end nobody saw, the last container that ran."""
    name = main_container(pod)
    if _state(pod, name).get("running"):
        return name
    inits = _statuses(pod, "initContainerStatuses")
    ran = [str(each.get("name")) for each in inits if mapping(each.get("state")).keys() & {"running", "terminated"}]
    return ran[-1] if ran else None


def _ended(pod: Pod, over: Mapping[str, Any], container: str, *, asked: bool) -> PodEnded:
    """What a container that has terminated makes of its pod."""
    ended_at = seconds_of(over.get("finishedAt"))
    code, word, said = integer(over.get("exitCode")), over.get("reason"), str(over.get("message") or "")
    if code is None:
        return PodEnded(Exit(message="its exit code is not known"), ended_at, container)
    if word in _NOT_EXECUTED:
        code = 127 if _NOT_FOUND.search(said) else 126 if "permission denied" in said else code
        return PodEnded(Exit(code, message=text(_RUNTIME.sub("", said))), ended_at)
    if word == "ContainerStatusUnknown":  # its code is made up
        return PodEnded(_unseen(pod, asked=asked), None, container)
    if word == "OOMKilled" and code:
        limit = memory_limit(pod, container)
        words = f"its limit is {size(limit)}" if limit else ""
        if code == 128 + Signals.SIGKILL:
            return PodEnded(Exit(signal=Signals.SIGKILL.value, message=words, out_of_memory=True), ended_at, container)
        return PodEnded(Exit(code, message=words, out_of_memory=True), ended_at, container)
    reason, words = ("", "") if asked else _why(pod, ended_at, code)
    return PodEnded(Exit(code, message=words, reason=reason), ended_at, container)


def _init_ended(pod: Pod, container: str, over: Mapping[str, Any], *, asked: bool) -> PodEnded:
    """What the failure of an init container makes of its pod: nobody has run the replica's own command."""
    end = _ended(pod, over, container, asked=asked)
    if asked and not end.exit.out_of_memory:
        return PodEnded(_unseen(pod, asked=asked), end.ended_at, container)
    words = "; ".join(filter(None, (f"in the init container {container}", end.exit.message)))
    reason = end.exit.reason or ("" if end.exit.out_of_memory else "InitFailed")
    return end.replace(exit=end.exit.replace(message=words, reason=reason))


def _unseen(pod: Pod, *, asked: bool, deleted: bool = False) -> Exit:
    """How a pod ended of whose command nobody saw the end."""
    if asked and started_at(pod) is None:
        return Exit(message="it was stopped before it started")
    if asked:
        return Exit(message="it was stopped, and nobody saw it end")
    reason, words = _why(pod, None, deleted=deleted)
    said = text(mapping(pod.get("status")).get("message"))
    return Exit(message=words or said or "nobody saw it end", reason=reason)


def _why(pod: Pod, ended_at: float | None, code: int | None = None, *, deleted: bool = False) -> tuple[str, str]:
    """Who ended a pod that did not end by itself: a word for it, and a sentence; nothing if nobody else did."""
    status = mapping(pod.get("status"))
    node = text(mapping(pod.get("spec")).get("nodeName")) or "its node"
    word, said = text(status.get("reason")), text(status.get("message")).rstrip(".")
    if why := _disruption(pod, node, ended_at, said):
        return why
    if word == "Evicted":  # for no need of its node's: it took more than it may
        return "OverLimit", f"evicted from {node}: {said}"
    if word == "DeadlineExceeded":
        return word, "the deadline of its pod is over (activeDeadlineSeconds)"
    if word == "NodeLost":
        return word, f"{node} does not answer any more"
    if word and ended_at is None and status.get("phase") == "Failed":
        return "Rejected", f"{node} did not take it: {said or word}"
    if ended_at is None and (deleted or node == "its node"):
        return "Deleted", "its pod was deleted"
    if ended_at is None:
        is_over = status.get("phase") in ("Failed", "Succeeded")
        return ("", "") if is_over else ("NodeLost", f"its pod was to go, and {node} does not answer")
    return ("Deleted", "its pod was deleted") if _was_deleted_first(pod, ended_at, code) else ("", "")


def _disruption(pod: Pod, node: str, ended_at: float | None, said: str) -> tuple[str, str] | None:
    """What the cluster itself did to a pod, as it says; None if it did nothing, or only after its end."""
    targets = [each for each in _conditions(pod) if each.get("type") == "DisruptionTarget"]
    target: Mapping[str, Any] = next((each for each in targets if each.get("status") == "True"), {})
    since = seconds_of(target.get("lastTransitionTime"))
    if not target or (ended_at is not None and since is not None and ended_at < since):
        return None
    match target.get("reason"):
        case "PreemptionByScheduler":
            return "Displaced", f"its place on {node} was given to a pod of higher priority"
        case "EvictionByEvictionAPI":
            return "Evicted", f"evicted from {node} through the API, as when a node is drained"
        case "DeletionByTaintManager" if ended_at is not None:
            return "Evicted", f"evicted from {node}, which has a taint that it does not tolerate"
        case "DeletionByTaintManager":
            return "NodeLost", f"{node} does not answer any more"
        case "DeletionByPodGC":
            return "NodeLost", f"{node} is gone from the cluster"
        case _:
            return "Evicted", f"evicted from {node}: {said or text(target.get('message'))}"


def _was_deleted_first(pod: Pod, ended_at: float, code: int | None) -> bool:
    """Whether a pod was deleted before its command ended, and not only removed after it."""
    metadata = mapping(pod.get("metadata"))
    gone_by = seconds_of(metadata.get("deletionTimestamp"))
    if gone_by is None:
        return False
    # At the very end, when the kubelet says that nothing is left, both are set anew and tell nothing.
    since = gone_by - (integer(metadata.get("deletionGracePeriodSeconds")) or 0)
    return ended_at >= since or code in _ENDED_BY_SIGNAL


def _overdue_at(pod: Pod) -> float | None:
    """When a pod that is to go has been waited for long enough: its node does not answer, as may be known already."""
    gone_by = seconds_of(mapping(pod.get("metadata")).get("deletionTimestamp"))
    if gone_by is None:
        return None
    return 0.0 if is_unreachable(pod) else gone_by + CONFIRM_SECONDS
