"""Who holds up a line in which nobody gets on: the one that is not where the others wait for it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import Enum, auto

from drumline.plan.types import ReplicaId
from drumline.record import Record
from drumline.run.stacks import Frame, Thread, main_thread
from drumline.words import listed

_MOST_NAMED = 4

# Where frameworks wait for the others, by the file of a frame and its function: what stands there is said.
_WAITS = (
    re.compile(r"/torch/distributed/(?:distributed_c10d|rendezvous)\.py (?P<word>[a-z]\w*)$"),
    re.compile(r"/torch/nn/parallel/distributed\.py (?P<word>DistributedDataParallel)\b"),
    re.compile(r"/torch/autograd/__init__\.py (?P<word>backward)$"),
    re.compile(r"/jax/experimental/multihost_utils\.py (?P<word>[a-z]\w*)$"),
    re.compile(r"/jax/_src/distributed\.py (?:State\.)?(?P<word>initialize)$"),
    re.compile(r"/jax/_src/.* (?:\w+\.)?(?P<word>block_until_ready|_value)$"),
    re.compile(r"/tensorflow/python/eager/context\.py (?:\w+\.)?(?P<word>ensure_initialized)$"),
    re.compile(r"/tensorflow/python/eager/execute\.py quick_execute$"),
    re.compile(r"/tensorflow/python/eager/context\.py (?:\w+\.)?(?:add_c_function|call_function|sync|async_wait)$"),
    re.compile(r"/tensorflow/python/distribute/coordinator/(?:cluster_coordinator|values)\.py "),
    re.compile(r"/tensorflow/python/distribute/(?P<word>multi_worker_util|remote)\.py\b"),
)
_UNNAMED_CALL = "a step of TensorFlow"
# These are only there while one waits, however busily; all others may also be at work.
_CERTAIN_WAITS = re.compile(r"/torch/distributed/(?:distributed_c10d|rendezvous)\.py ")
_NATIVE_WAITS = re.compile(r"\b(?:c10d|gloo)::|\bnccl[A-Z]\w*|\bMPI_[A-Z]\w*|\bxla::cpu::Gloo")
_SERVES = re.compile(r"/(?:server_lib\.py (?:Server\.)?join|socketserver\.py .*serve_forever)$")

# Of compiled code, what a person would call it.
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
    """What a replica does, as far as its stacks say."""

    WAITS = auto()  # for the others
    SERVES = auto()
    ELSEWHERE = auto()
    STOPPED = auto()
    UNKNOWN = auto()


class Activity(Record):
    """What a replica does, in which function, and where in its user's code; `surely` if it cannot be at work."""

    doing: ActivityKind
    word: str = ""
    place: str = ""
    surely: bool = False


class Diagnosis(Record):
    """Who is the likely culprit, if it is one, and a sentence about everybody."""

    replica: ReplicaId | None
    message: str


def read_activity(text: str, *, is_stopped: bool = False) -> Activity:
    """What a replica does by the text of its stacks; of one that is stopped, where."""
    thread = main_thread(text)
    if thread is None:
        return Activity(ActivityKind.STOPPED if is_stopped else ActivityKind.UNKNOWN)
    word, surely = _waiting_call(thread)
    if is_stopped:
        return Activity(ActivityKind.STOPPED, "", _place(thread))
    if word:
        return Activity(ActivityKind.WAITS, word, _place(thread), surely)
    if any(_SERVES.search(_qualified_name(frame)) for frame in thread.frames):
        return Activity(ActivityKind.SERVES, "join", _place(thread))
    return Activity(ActivityKind.ELSEWHERE, _call(thread), _place(thread))


def all_wait(activities: Mapping[ReplicaId, Activity]) -> bool:
    """Whether everybody waits for the others, or is stopped, however busy; beyond doubt."""
    everyone = [each for name, each in activities.items() if name.role != "evaluator"]
    waits = [each for each in everyone if each.doing is ActivityKind.WAITS and each.surely]
    return bool(waits) and all(
        each in waits or each.doing in (ActivityKind.STOPPED, ActivityKind.SERVES) for each in everyone
    )


def find_blocking_replica(activities: Mapping[ReplicaId, Activity]) -> Diagnosis:
    """Who keeps the others waiting: whoever is stopped, or is elsewhere, or cannot be looked at while they can."""
    trains = {name: each for name, each in activities.items() if name.role != "evaluator"}
    line = {name: each for name, each in trains.items() if each.doing is not ActivityKind.SERVES}
    waits = [name for name, each in line.items() if each.doing is ActivityKind.WAITS]
    for doing in (ActivityKind.STOPPED, ActivityKind.ELSEWHERE, ActivityKind.UNKNOWN):
        found = [name for name, each in line.items() if each.doing is doing]
        # Of a chief that shows no stack nobody knows whether it waits for who serves it.
        alone = len(trains if doing is ActivityKind.UNKNOWN else line) == 1
        if found and (waits or doing is ActivityKind.STOPPED or alone):
            return Diagnosis(found[0], _sentence(found, waits, line))
    if waits and len(waits) == len(line):
        words = {line[name].word for name in waits}
        together = (
            f"each replica waits in {words.pop()}"
            if len(words) == 1 and len(waits) > 1
            else _describe_each(waits, line)
        )
        return Diagnosis(None, together)
    return Diagnosis(None, _describe_each(list(line), line))  # of equals nobody is to blame more than the others


def _sentence(found: Sequence[ReplicaId], waits: Sequence[ReplicaId], line: Mapping[ReplicaId, Activity]) -> str:
    said = listed([f"{name} {_describe(line[name])}" for name in found[:_MOST_NAMED]])
    if not waits:
        return said
    words = listed(sorted({line[name].word for name in waits}))
    others = f"{waits[0]} waits" if len(waits) == 1 else "the others wait"
    return f"{said}, {others} in {words}"


def _describe_each(names: Sequence[ReplicaId], line: Mapping[ReplicaId, Activity]) -> str:
    if len(names) > 1 and len({line[name] for name in names}) == 1:
        return f"each replica {_describe(line[names[0]])}"
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(f"{name} {_describe(line[name])}" for name in names[:_MOST_NAMED]) + more


def _describe(activity: Activity) -> str:
    place = f" ({activity.place})" if activity.place else ""
    match activity.doing:
        case ActivityKind.STOPPED:
            return f"is stopped{place}"
        case ActivityKind.UNKNOWN:
            return "shows no stack"
        case ActivityKind.WAITS:
            return f"waits in {activity.word}{place}"
        case _:
            return f"is in {activity.word}{place}"


def _waiting_call(thread: Thread) -> tuple[str, bool]:
    """In what a thread waits for the others: the outermost that is known; and whether that is beyond doubt."""
    word, surely = "", False
    for frame in thread.frames:
        spelt = _qualified_name(frame)
        if frame.is_native:
            surely = surely or bool(_NATIVE_WAITS.search(frame.name))
            continue
        for pattern in _WAITS:
            if found := pattern.search(spelt):
                word = next(filter(None, found.groups()), _UNNAMED_CALL)
                surely = surely or bool(_CERTAIN_WAITS.search(spelt))
    if surely and not word:
        word = next(frame.name for frame in thread.frames if frame.is_native and _NATIVE_WAITS.search(frame.name))
        word = re.split(r"[<(]", word)[0]
    return word, surely


def _call(thread: Thread) -> str:
    """What a thread is in: a function of the system that people know, else the innermost of Python."""
    for frame in thread.frames:
        if not frame.is_native:
            return frame.name.removesuffix(".<locals>").rpartition("<locals>.")[2]
        if frame.name in _CALLS:
            return _CALLS[frame.name]
    return thread.frames[0].name if thread.frames else "nothing"


def _place(thread: Thread) -> str:
    """Where it is in its user's own code, else in whatever Python there is."""
    of_python = [frame for frame in thread.frames if not frame.is_native]
    own = (frame for frame in of_python if not _NOT_USER_CODE.search(frame.file))
    frame = next(own, of_python[0] if of_python else None)
    return f"{frame.file.rpartition('/')[2]}:{frame.line}" if frame else ""


def _qualified_name(frame: Frame) -> str:
    return f"{frame.file} {frame.name}"
