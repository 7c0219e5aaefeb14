"""Interpret a pod's status: it waits, runs or has ended. Pure.

A pod is a plain mapping as the API server sends it.
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

# How long a kubelet may take to confirm the deletion of a pod after its grace.
CONFIRM_SECONDS = 30.0

_MAIN = ("replica", "tensorflow")  # the second is required by the TFJob operator
_NOT_EXECUTED = ("StartError", "ContainerCannotRun", "RunContainerError")
_NOT_FOUND = re.compile(r"executable file not found|no such file or directory")
_RUNTIME = re.compile(r"^.*unable to start container process: (?:error during container init: )?|: unknown$", re.DOTALL)
_ENDED_BY_SIGNAL = (128 + Signals.SIGKILL, 128 + Signals.SIGTERM)


class PodRunning(Record):
    """The command of the pod runs, as far as known; the pod has to be checked again at `overdue_at` (UTC)."""

    started_at: float | None = None  # UTC, a whole second
    overdue_at: float | None = None  # of a deleted pod, which counts as lost if it has not ended by then


class PodEnded(Record):
    """The pod has ended; its exit may be unknown."""

    exit: Exit
    ended_at: float | None = None  # UTC, a whole second; None if unknown
    container: str | None = None  # the container that ended it; None if none ran


PodStatus = PodWaiting | PodRunning | PodEnded


def read_pod_status(
    pod: Pod, *, now: float, deleted: bool = False, asked: bool = False, trouble: PodWaiting | None = None
) -> PodStatus:
    """Return the status of a pod at this time (UTC).

    `deleted` is whether the API server has removed the pod, so that this is its last state; `asked` is whether this
    supervisor has stopped it, so that its deletion is not reported as a reason. `trouble` is the wait that an event
    reports, for a status that has none.
    """
    status = mapping(pod.get("status"))
    name = main_container(pod)
    main = _state(pod, name)
    # A kubelet may have restarted the container meanwhile, as for an operator: the replica has ended nevertheless.
    if over := mapping(main.get("terminated")) or mapping(_state(pod, name, "lastState").get("terminated")):
        return _ended(pod, over, name, asked=asked)
    if failed := _failed_init(pod):
        return _init_ended(pod, *failed, asked=asked)
    overdue_at = _overdue_at(pod)
    # A deleted pod without a node never runs.
    has_no_node = overdue_at is not None and not mapping(pod.get("spec")).get("nodeName")
    if (
        status.get("phase") in ("Failed", "Succeeded")
        or has_no_node
        or deleted
        or (overdue_at is not None and now >= overdue_at)
    ):
        return PodEnded(_unknown_exit(pod, asked=asked, deleted=deleted), container=_last_container(pod))
    if running := mapping(main.get("running")):
        return PodRunning(seconds_of(running.get("startedAt")), overdue_at)
    if overdue_at is not None:
        return PodRunning(None, overdue_at)
    return read_wait(pod, name, trouble)


def main_container(pod: Pod) -> str:
    """Return the name of the container that runs the replica's command."""
    names = [str(each.get("name")) for each in mappings(mapping(pod.get("spec")).get("containers"))]
    return next((name for name in names if name in _MAIN), names[0] if names else _MAIN[0])


def started_at(pod: Pod) -> float | None:
    """Return when the command started (UTC); None if it has not, or the time is unknown."""
    state = _state(pod, main_container(pod))
    return seconds_of((mapping(state.get("running")) or mapping(state.get("terminated"))).get("startedAt"))


def has_run(pod: Pod, container: str) -> bool:
    """Return whether a container that ended its pod has run: an init container always, the main one if it started."""
    return container != main_container(pod) or started_at(pod) is not None


def is_unreachable(pod: Pod) -> bool:
    """Return whether the pod's node does not answer: the cluster then clears Ready, but not ContainersReady."""
    conditions = {str(each.get("type")): each.get("status") for each in _conditions(pod)}
    return conditions.get("Ready") == "False" and conditions.get("ContainersReady") == "True"


def is_over(pod: Pod) -> bool:
    """Return whether all containers have ended; the phase follows a little later."""
    states = [mapping(each.get("state")) for each in _statuses(pod)]
    are_over = bool(states) and all("terminated" in each for each in states)
    return are_over or mapping(pod.get("status")).get("phase") in ("Failed", "Succeeded")


def is_terminating(pod: Pod) -> bool:
    """Return whether the pod was deleted."""
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
    """Return the last container that ran."""
    name = main_container(pod)
    if _state(pod, name).get("running"):
        return name
    inits = _statuses(pod, "initContainerStatuses")
    ran = [str(each.get("name")) for each in inits if mapping(each.get("state")).keys() & {"running", "terminated"}]
    return ran[-1] if ran else None


def _ended(pod: Pod, over: Mapping[str, Any], container: str, *, asked: bool) -> PodEnded:
    """Return the end of a pod after its container has terminated."""
    ended_at = seconds_of(over.get("finishedAt"))
    code, word, reported = integer(over.get("exitCode")), over.get("reason"), str(over.get("message") or "")
    if code is None:
        return PodEnded(Exit(message="its exit code is unknown"), ended_at, container)
    if word in _NOT_EXECUTED:
        code = 127 if _NOT_FOUND.search(reported) else 126 if "permission denied" in reported else code
        return PodEnded(Exit(code, message=text(_RUNTIME.sub("", reported))), ended_at)
    if word == "ContainerStatusUnknown":  # its exit code is not real
        return PodEnded(_unknown_exit(pod, asked=asked), None, container)
    if word == "OOMKilled" and code:
        limit = memory_limit(pod, container)
        words = f"its limit is {size(limit)}" if limit else ""
        if code == 128 + Signals.SIGKILL:
            return PodEnded(Exit(signal=Signals.SIGKILL.value, message=words, out_of_memory=True), ended_at, container)
        return PodEnded(Exit(code, message=words, out_of_memory=True), ended_at, container)
    reason, words = ("", "") if asked else _why(pod, ended_at, code)
    return PodEnded(Exit(code, message=words, reason=reason), ended_at, container)


def _init_ended(pod: Pod, container: str, over: Mapping[str, Any], *, asked: bool) -> PodEnded:
    """Return the end of a pod after an init container has failed."""
    end = _ended(pod, over, container, asked=asked)
    if asked and not end.exit.out_of_memory:
        return PodEnded(_unknown_exit(pod, asked=asked), end.ended_at, container)
    words = "; ".join(filter(None, (f"in the init container {container}", end.exit.message)))
    reason = end.exit.reason or ("" if end.exit.out_of_memory else "InitFailed")
    return end.replace(exit=end.exit.replace(message=words, reason=reason))


def _unknown_exit(pod: Pod, *, asked: bool, deleted: bool = False) -> Exit:
    """Return the exit of a pod if the exit of its command is unknown."""
    if asked and started_at(pod) is None:
        return Exit(message="it was stopped before it started")
    if asked:
        return Exit(message="it was stopped, and its exit status is unknown")
    reason, words = _why(pod, None, deleted=deleted)
    reported = text(mapping(pod.get("status")).get("message"))
    return Exit(message=words or reported or "its exit status is unknown", reason=reason)


def _why(pod: Pod, ended_at: float | None, code: int | None = None, *, deleted: bool = False) -> tuple[str, str]:
    """Return the reason and the message for a pod that was ended from outside; empty if it ended by itself."""
    status = mapping(pod.get("status"))
    node = text(mapping(pod.get("spec")).get("nodeName")) or "its node"
    word, reported = text(status.get("reason")), text(status.get("message")).rstrip(".")
    if why := _disruption(pod, node, ended_at, reported):
        return why
    if word == "Evicted":  # without a disruption: it exceeded a limit
        return "OverLimit", f"evicted from {node}: {reported}"
    if word == "DeadlineExceeded":
        return word, "its pod exceeded activeDeadlineSeconds"
    if word == "NodeLost":
        return word, f"{node} does not answer any more"
    if word and ended_at is None and status.get("phase") == "Failed":
        return "Rejected", f"{node} rejected it: {reported or word}"
    if ended_at is None and (deleted or node == "its node"):
        return "Deleted", "its pod was deleted"
    if ended_at is None:
        is_over = status.get("phase") in ("Failed", "Succeeded")
        return ("", "") if is_over else ("NodeLost", f"its pod was deleted, and {node} does not answer")
    return ("Deleted", "its pod was deleted") if _was_deleted_first(pod, ended_at, code) else ("", "")


def _disruption(pod: Pod, node: str, ended_at: float | None, reported: str) -> tuple[str, str] | None:
    """Return the disruption that the cluster reports for a pod; None if there is none, or only after its end."""
    targets = [each for each in _conditions(pod) if each.get("type") == "DisruptionTarget"]
    target: Mapping[str, Any] = next((each for each in targets if each.get("status") == "True"), {})
    since = seconds_of(target.get("lastTransitionTime"))
    if not target or (ended_at is not None and since is not None and ended_at < since):
        return None
    match target.get("reason"):
        case "PreemptionByScheduler":
            return "Displaced", f"preempted on {node} by a pod of higher priority"
        case "EvictionByEvictionAPI":
            return "Evicted", f"evicted from {node} through the API, as by `kubectl drain`"
        case "DeletionByTaintManager" if ended_at is not None:
            return "Evicted", f"evicted from {node}, which has a taint that the pod does not tolerate"
        case "DeletionByTaintManager":
            return "NodeLost", f"{node} does not answer any more"
        case "DeletionByPodGC":
            return "NodeLost", f"{node} was removed from the cluster"
        case _:
            return "Evicted", f"evicted from {node}: {reported or text(target.get('message'))}"


def _was_deleted_first(pod: Pod, ended_at: float, code: int | None) -> bool:
    """Return whether a pod was deleted before its command ended."""
    metadata = mapping(pod.get("metadata"))
    gone_by = seconds_of(metadata.get("deletionTimestamp"))
    if gone_by is None:
        return False
    # The kubelet resets both when it confirms the deletion.
    since = gone_by - (integer(metadata.get("deletionGracePeriodSeconds")) or 0)
    return ended_at >= since or code in _ENDED_BY_SIGNAL


def _overdue_at(pod: Pod) -> float | None:
    """Return when a deleted pod counts as lost: at once if its node does not answer; None if it is not deleted."""
    gone_by = seconds_of(mapping(pod.get("metadata")).get("deletionTimestamp"))
    if gone_by is None:
        return None
    return 0.0 if is_unreachable(pod) else gone_by + CONFIRM_SECONDS
