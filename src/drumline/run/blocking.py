"""Find the replica that blocks a gang without progress: it does not wait where the other replicas wait."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import Enum, auto

from drumline.plan.types import ReplicaId
from drumline.record import Record
from drumline.run.stacks import Frame, Thread, main_thread
from drumline.words import listed

_MOST_NAMED = 4

# Frames (file and function) in which frameworks wait for other replicas; the group `function` is the displayed name.
_WAITS = (
    re.compile(r"/torch/distributed/(?:distributed_c10d|rendezvous)\.py (?P<function>[a-z]\w*)$"),
    re.compile(r"/torch/nn/parallel/distributed\.py (?P<function>DistributedDataParallel)\b"),
    re.compile(r"/torch/autograd/__init__\.py (?P<function>backward)$"),
    re.compile(r"/jax/experimental/multihost_utils\.py (?P<function>[a-z]\w*)$"),
    re.compile(r"/jax/_src/distributed\.py (?:State\.)?(?P<function>initialize)$"),
    re.compile(r"/jax/_src/.* (?:\w+\.)?(?P<function>block_until_ready|_value)$"),
    re.compile(r"/tensorflow/python/eager/context\.py (?:\w+\.)?(?P<function>ensure_initialized)$"),
    re.compile(r"/tensorflow/python/eager/execute\.py quick_execute$"),
    re.compile(r"/tensorflow/python/eager/context\.py (?:\w+\.)?(?:add_c_function|call_function|sync|async_wait)$"),
    re.compile(r"/tensorflow/python/distribute/coordinator/(?:cluster_coordinator|values)\.py "),
    re.compile(r"/tensorflow/python/distribute/(?P<function>multi_worker_util|remote)\.py\b"),
)
_UNNAMED_CALL = "a step of TensorFlow"
# A thread in one of these functions certainly waits, even if it uses the processor. In the other functions of _WAITS it
# may also compute.
_CERTAIN_WAITS = re.compile(r"/torch/distributed/(?:distributed_c10d|rendezvous)\.py ")
_NATIVE_WAITS = re.compile(r"\b(?:c10d|gloo)::|\bnccl[A-Z]\w*|\bMPI_[A-Z]\w*|\bxla::cpu::Gloo")
_SERVES = re.compile(r"/(?:server_lib\.py (?:Server\.)?join|socketserver\.py .*serve_forever)$")

# The Python names of compiled functions.
_CALLS = {
    "time_sleep": "sleep",
    "lock_PyThread_acquire_lock": "Lock.acquire",
    "rlock_acquire": "RLock.acquire",
    "sock_recv": "recv",
    "sock_accept": "accept",
    "os_read": "read",
    "os_waitpid": "waitpid",
    "builtin_input": "input",
}
_NOT_USER_CODE = re.compile(r"/(?:site-packages|dist-packages)/|/lib/python3[^/]*/|/drumline/runtime/|^<frozen ")


class ActivityKind(Enum):
    """What a replica does, according to its stacks."""

    WAITS = auto()  # for other replicas
    SERVES = auto()  # requests of other replicas, as a ps does
    ELSEWHERE = auto()  # it executes other code
    STOPPED = auto()  # its process is stopped by a signal
    UNKNOWN = auto()  # it has no stacks


class Activity(Record):
    """What a replica does, in which function, and at which line of the user's code.

    `is_certain` is true if the replica certainly waits, and does not compute.
    """

    kind: ActivityKind
    function: str = ""
    place: str = ""
    is_certain: bool = False


class Diagnosis(Record):
    """The replica that probably blocks the others, if there is one, and a sentence about all replicas."""

    replica: ReplicaId | None
    message: str


def read_activity(text: str, *, is_stopped: bool = False) -> Activity:
    """Return what a replica does, according to the text of its stacks."""
    thread = main_thread(text)
    if thread is None:
        return Activity(ActivityKind.STOPPED if is_stopped else ActivityKind.UNKNOWN)
    function, is_certain = _waiting_call(thread)
    if is_stopped:
        return Activity(ActivityKind.STOPPED, "", _place(thread))
    if function:
        return Activity(ActivityKind.WAITS, function, _place(thread), is_certain)
    if any(_SERVES.search(_qualified_name(frame)) for frame in thread.frames):
        return Activity(ActivityKind.SERVES, "join", _place(thread))
    return Activity(ActivityKind.ELSEWHERE, _call(thread), _place(thread))


def all_wait(activities: Mapping[ReplicaId, Activity]) -> bool:
    """Return whether every replica certainly waits for others, serves or is stopped, and at least one waits."""
    gang = [each for name, each in activities.items() if name.role != "evaluator"]
    waits = [each for each in gang if each.kind is ActivityKind.WAITS and each.is_certain]
    return bool(waits) and all(
        each in waits or each.kind in (ActivityKind.STOPPED, ActivityKind.SERVES) for each in gang
    )


def find_blocking_replica(activities: Mapping[ReplicaId, Activity]) -> Diagnosis:
    """Return the replica for which the others wait: it is stopped, or executes other code, or has no stacks."""
    trains = {name: each for name, each in activities.items() if name.role != "evaluator"}
    computing = {name: each for name, each in trains.items() if each.kind is not ActivityKind.SERVES}
    waits = [name for name, each in computing.items() if each.kind is ActivityKind.WAITS]
    for kind in (ActivityKind.STOPPED, ActivityKind.ELSEWHERE, ActivityKind.UNKNOWN):
        found = [name for name, each in computing.items() if each.kind is kind]
        # A chief without stacks may be waiting for workers and ps, which are in `trains`.
        alone = len(trains if kind is ActivityKind.UNKNOWN else computing) == 1
        if found and (waits or kind is ActivityKind.STOPPED or alone):
            return Diagnosis(found[0], _describe_blocking(found, waits, computing))
    if waits and len(waits) == len(computing):
        words = {activities[name].function for name in waits}
        together = (
            f"each replica waits in {words.pop()}"
            if len(words) == 1 and len(waits) > 1
            else _describe_each(waits, computing)
        )
        return Diagnosis(None, together)
    return Diagnosis(None, _describe_each(list(computing), computing))


def _describe_blocking(
    found: Sequence[ReplicaId], waits: Sequence[ReplicaId], activities: Mapping[ReplicaId, Activity]
) -> str:
    said = listed([f"{name} {_describe(activities[name])}" for name in found[:_MOST_NAMED]])
    if not waits:
        return said
    words = listed(sorted({activities[name].function for name in waits}))
    others = f"{waits[0]} waits" if len(waits) == 1 else "the others wait"
    return f"{said}, {others} in {words}"


def _describe_each(names: Sequence[ReplicaId], activities: Mapping[ReplicaId, Activity]) -> str:
    if len(names) > 1 and len({activities[name] for name in names}) == 1:
        return f"each replica {_describe(activities[names[0]])}"
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(f"{name} {_describe(activities[name])}" for name in names[:_MOST_NAMED]) + more


def _describe(activity: Activity) -> str:
    place = f" ({activity.place})" if activity.place else ""
    match activity.kind:
        case ActivityKind.STOPPED:
            return f"is stopped{place}"
        case ActivityKind.UNKNOWN:
            return "shows no stack"
        case ActivityKind.WAITS:
            return f"waits in {activity.function}{place}"
        case _:
            return f"is in {activity.function}{place}"


def _waiting_call(thread: Thread) -> tuple[str, bool]:
    """Return the outermost known function in which a thread waits for others, and whether it certainly waits.

    The function is empty if the thread does not wait.
    """
    function, is_certain = "", False
    for frame in thread.frames:
        name = _qualified_name(frame)
        if frame.is_native:
            is_certain = is_certain or bool(_NATIVE_WAITS.search(frame.name))
            continue
        for pattern in _WAITS:
            if found := pattern.search(name):
                function = next(filter(None, found.groups()), _UNNAMED_CALL)
                is_certain = is_certain or bool(_CERTAIN_WAITS.search(name))
    if is_certain and not function:
        function = next(frame.name for frame in thread.frames if frame.is_native and _NATIVE_WAITS.search(frame.name))
        function = re.split(r"[<(]", function)[0]
    return function, is_certain


def _call(thread: Thread) -> str:
    """Return the function that a thread executes: a well-known system function, else the innermost Python function."""
    for frame in thread.frames:
        if not frame.is_native:
            return frame.name.removesuffix(".<locals>").rpartition("<locals>.")[2]
        if frame.name in _CALLS:
            return _CALLS[frame.name]
    return thread.frames[0].name if thread.frames else "nothing"


def _place(thread: Thread) -> str:
    """Return `train.py:12`, the innermost frame of user code, else of any Python code; empty if there is none."""
    of_python = [frame for frame in thread.frames if not frame.is_native]
    own = (frame for frame in of_python if not _NOT_USER_CODE.search(frame.file))
    frame = next(own, of_python[0] if of_python else None)
    return f"{frame.file.rpartition('/')[2]}:{frame.line}" if frame else ""


def _qualified_name(frame: Frame) -> str:
    return f"{frame.file} {frame.name}"
