"""Examine a TF_CONFIG: find problems, warnings and notes, and the replica for which it is."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Literal

from drumline.plan.address import Address, parse_address
from drumline.plan.parse import Object, kind_of, parse_json, quote, spell_path, suggest
from drumline.plan.types import COMPUTING, ROLES, ReplicaId
from drumline.record import Record
from drumline.words import count, listed

# Linux allows 32 pages for one variable: its name, the `=`, the value and a zero byte.
MAX_VALUE_BYTES = 32 * 4096 - len("TF_CONFIG=") - 1

# All keys that TensorFlow reads, the keys that only Estimator reads, and the keys that platforms add.
_KEYS = ("cluster", "task", "rpc_layer", "session_master", "model_dir", "service", "eval_session_master")
_OF_ESTIMATOR = ("model_dir", "service", "eval_session_master")
_TASK_KEYS = ("type", "index")
_WRITTEN_BY = {
    "environment": "Kubeflow and Google Cloud",
    "job": "Google Cloud",
    "sparseCluster": "Kubeflow for elastic workers, for the script to read",
    "task.trial": "Google Cloud",
    "task.cloud": "Google Cloud",
}

_ROLES = "the roles are chief, worker, ps and evaluator"
_MASTER = "tf.distribute refuses `master`; write `chief`"

Level = Literal["problem", "warning", "note"]


class Diagnostic(Record):
    """A problem, warning or note about the value at a path."""

    level: Level
    path: str
    message: str
    converts: bool = False  # conversion to a spec removes the problem


class Examination(Record):
    """The diagnostics of a TF_CONFIG, and its task."""

    diagnostics: tuple[Diagnostic, ...]
    task: ReplicaId | None = None
    chief: ReplicaId | None = None
    description: str = ""  # the replica and its peers, as a sentence; empty if the task is not known

    @property
    def ok(self) -> bool:
        """Return whether there are no problems; warnings and notes are allowed."""
        return not self.of("problem")

    def of(self, level: Level) -> list[Diagnostic]:
        """Return the diagnostics of one level."""
        return [each for each in self.diagnostics if each.level == level]


_problem = partial(Diagnostic, "problem")
_warning = partial(Diagnostic, "warning")
_note = partial(Diagnostic, "note")


class Node(Record):
    """One entry of `cluster`."""

    id: ReplicaId
    path: str
    value: object  # as written, perhaps not an address


def examine(text: str) -> Examination:
    """Return all problems, warnings and notes about a TF_CONFIG; never raises."""
    try:
        config = _parse(text)
    except ValueError as error:
        return Examination((_problem("", str(error)),))
    nodes = {node.id: node for node in _nodes(config.get("cluster"))}
    counts = Counter(node.role for node in nodes)
    role, index = _role(config.get("task")), _index(config.get("task"))
    diagnostics = (
        *_about_size(text),
        *_about_keys("", config, _KEYS),
        *_about_cluster(config),
        *_about_addresses(nodes.values()),
        *_about_roles(counts, role, is_whole=all(node.index < counts[node.role] for node in nodes)),
        *_about_task(config),
        *_about_membership(config.get("cluster"), nodes, role, index),
    )
    me = None if role is None or index is None else ReplicaId(role, index)
    # The evaluator need not be listed in its own TF_CONFIG.
    if me not in nodes and me != ReplicaId("evaluator", 0):
        me = None
    chief = next((ReplicaId(role, 0) for role in COMPUTING if counts[role]), None)
    return Examination(diagnostics, me, chief, _describe(me, chief, nodes, counts) if me else "")


def _parse(text: str) -> Object:
    if not text.strip():
        raise ValueError("is empty, which TensorFlow treats as invalid JSON, not as unset; run `unset TF_CONFIG`")
    if re.match(r"\s*(export\s|TF_CONFIG\s*=)", text):
        raise ValueError("is a shell command; TF_CONFIG is only the text between its quotes")
    config = parse_json(text)
    if isinstance(config, str) and config.lstrip().startswith("{"):
        raise ValueError("expected an object, got a text that holds one: it was turned into JSON twice")
    if not isinstance(config, Object):
        raise ValueError(f"expected an object with `cluster` and `task`, got {kind_of(config)}")
    return config


def _nodes(cluster: object) -> Iterator[Node]:
    """Yield the entries of known roles; `master` counts as chief."""
    if not isinstance(cluster, Object):
        return
    seen: Counter[str] = Counter()
    for key, values in cluster.items():
        role = "chief" if key == "master" else key
        if role not in ROLES:
            continue
        if isinstance(values, list):
            for position, value in enumerate(values):
                yield Node(ReplicaId(role, seen[role]), f"cluster.{key}[{position}]", value)
                seen[role] += 1
        elif isinstance(values, Object):
            for key_of_one, value in values.items():
                if (index := _as_index(key_of_one)) is not None:
                    yield Node(ReplicaId(role, index), f"cluster.{key}[{index}]", value)


def _role(task: object) -> str | None:
    written = task.get("type") if isinstance(task, Object) else None
    role = "chief" if written == "master" else written
    return role if isinstance(role, str) and role in ROLES else None


def _as_index(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None


def _index(task: object) -> int | None:
    index = task.get("index") if isinstance(task, Object) else None
    if isinstance(index, str):
        return _as_index(index)
    return index if isinstance(index, int) and not isinstance(index, bool) and index >= 0 else None


def _about_size(text: str) -> Iterator[Diagnostic]:
    size = len(text.strip().encode(errors="replace"))
    if size > MAX_VALUE_BYTES:
        yield _warning(
            "",
            f"has {size:,} bytes, and Linux takes {MAX_VALUE_BYTES:,} at most in this variable: no process can be"
            " started with it; the program itself can still set it",
        )


def _about_keys(path: str, value: Object, known: Collection[str]) -> Iterator[Diagnostic]:
    for key in value.repeated:
        yield _problem(spell_path(path, key), "appears more than once; TensorFlow uses the last")
    for key in value:
        place = spell_path(path, key)
        if writer := _WRITTEN_BY.get(place):
            yield _note(place, f"is written by {writer}; TensorFlow ignores it")
        elif not path and key in _OF_ESTIMATOR:
            yield _note(place, "is read by Estimator only")
        elif key not in known:
            yield _warning(place, f"is not a key that TensorFlow reads{suggest(key, known)}")


def _about_cluster(config: Object) -> Iterator[Diagnostic]:
    if "cluster" not in config:
        yield _problem("", "`cluster` is missing: without it this node trains alone")
        return
    cluster = config["cluster"]
    if not isinstance(cluster, Object):
        yield _problem("cluster", f"expected an object of roles and their addresses, got {kind_of(cluster)}")
        return
    yield from _about_keys("cluster", cluster, cluster)
    if not cluster:
        yield _problem("cluster", "is empty")
    for key, values in cluster.items():
        path = spell_path("cluster", key)
        if key == "master":
            yield _problem(path, _MASTER, converts=True)
        elif key not in ROLES:
            yield _problem(path, f"is not a role; {_ROLES}{suggest(key, ROLES)}")
            continue
        if isinstance(values, str):
            yield _problem(path, f"expected a list of `host:port`, got {kind_of(values)}; put it in brackets")
        elif isinstance(values, Object):
            yield from _about_sparse(path, values)
        elif not isinstance(values, list):
            yield _problem(path, f"expected a list of `host:port`, got {kind_of(values)}")
        elif not values:
            yield _problem(path, "is an empty list, which makes TensorFlow crash; leave the role out")


def _about_sparse(path: str, values: Object) -> Iterator[Diagnostic]:
    """Check a role with an object of replicas by index instead of a list."""
    yield from _about_keys(path, values, values)
    for key in values:
        if _as_index(key) is None:
            yield _problem(spell_path(path, key), 'expected an index, such as "1", with its address')
    indexes = sorted(index for key in values if (index := _as_index(key)) is not None)
    if not values:
        yield _problem(path, "is empty, which makes TensorFlow crash; leave the role out")
    elif indexes and indexes != list(range(len(indexes))):
        numbers = listed([str(index) for index in indexes])
        yield _note(path, f"lists {'index' if len(indexes) == 1 else 'indexes'} {numbers} only, as TensorFlow allows")


def _about_addresses(nodes: Iterable[Node]) -> Iterator[Diagnostic]:
    owners: dict[tuple[str, int], tuple[ReplicaId, Address]] = {}
    local: dict[bool, Address] = {}
    for node in nodes:
        if not isinstance(node.value, str):
            yield _problem(node.path, f"expected `host:port`, got {kind_of(node.value)}")
            continue
        try:
            address = parse_address(node.value)
        except ValueError as error:
            yield _problem(node.path, str(error))
            continue
        local.setdefault(address.is_local, address)
        owner, same = owners.setdefault(address.identity, (node.id, address))
        if owner != node.id:
            also = "" if str(same) == str(address) else f", written `{same}`"
            yield _problem(node.path, f"`{address}` is already the address of {owner}{also}")
    if len(local) > 1:
        yield _warning(
            "cluster",
            f"`{local[True]}` means the machine where it is read, so a node on another one, such as `{local[False]}`,"
            " cannot reach it",
        )


def _about_roles(counts: Counter[str], role: str | None, *, is_whole: bool) -> Iterator[Diagnostic]:
    """Check the roles and their numbers of replicas; with `is_whole`, the cluster lists every index of each role."""
    for single in ("chief", "evaluator"):
        if counts[single] > 1:
            yield _problem(f"cluster.{single}", f"there is at most one {single}, not {counts[single]}")
    if counts["evaluator"] and role not in ("evaluator", None):
        yield _problem(
            "cluster.evaluator",
            "belongs in the evaluator's own TF_CONFIG only: if it is listed here, this replica counts it among those"
            " that train, and waits for it",
            converts=True,
        )
    trainers = counts["chief"] + counts["worker"]
    if counts["ps"] and not trainers:
        yield _problem("cluster", "no replica trains: there is neither a `chief` nor a `worker`")
    elif counts["ps"] and not counts["chief"]:
        yield _warning(
            "cluster.ps",
            "parameter servers without a chief: today's strategies need one to coordinate, and a mirrored strategy"
            " with ps in its cluster hangs without a message; add a `chief`, or drop `ps`",
        )
    elif counts["ps"] and not counts["worker"]:
        yield _warning("cluster.ps", "parameter servers without a worker: ParameterServerStrategy needs one")
    elif counts["ps"]:
        yield _note(
            "cluster.ps",
            "this is for ParameterServerStrategy; a mirrored strategy with ps in its cluster hangs without a message",
        )
    elif trainers == 1 and is_whole and not counts["evaluator"] and role != "evaluator":
        yield _note("cluster", "has one node only, which also works without TF_CONFIG")


def _about_task(config: Object) -> Iterator[Diagnostic]:
    if "task" not in config:
        yield _problem("", "`task` is missing: without it the role and index of this node are unknown")
        return
    task = config["task"]
    if not isinstance(task, Object):
        yield _problem("task", f"expected an object with `type` and `index`, got {kind_of(task)}")
        return
    yield from _about_keys("task", task, _TASK_KEYS)
    role, index = task.get("type"), task.get("index")
    if "type" not in task:
        yield _problem("task", "`type` is missing: it is the role of this node")
    elif role == "master":
        yield _problem("task.type", _MASTER)
    elif not isinstance(role, str):
        yield _problem("task.type", f"expected a role, got {kind_of(role)}; {_ROLES}")
    elif role not in ROLES:
        yield _problem("task.type", f"{quote(role)} is not a role; {_ROLES}{suggest(role, ROLES)}")
    if "index" not in task:
        yield _problem("task", "`index` is missing: the first of a role is 0, the next is 1")
    elif isinstance(index, str) and _index(task) is not None:
        yield _problem("task.index", f"expected a number, got {kind_of(index)}: write {_index(task)}")
    elif isinstance(index, int) and not isinstance(index, bool) and index < 0:
        yield _problem("task.index", f"expected a number of at least 0, got {kind_of(index)}")
    elif _index(task) is None:
        yield _problem("task.index", f"expected a whole number, got {kind_of(index)}")


def _about_membership(
    cluster: object, nodes: Collection[ReplicaId], role: str | None, index: int | None
) -> Iterator[Diagnostic]:
    """Check that `cluster` has the role and the index of the task."""
    if role is None or not isinstance(cluster, Object) or not cluster:
        return
    written = role in cluster or (role == "chief" and "master" in cluster)
    indexes = sorted(node.index for node in nodes if node.role == role) or ([0] if role == "evaluator" else [])
    if not indexes and not written:
        counts = Counter(node.role for node in nodes)
        have = listed([count(counts[role], role) for role in ROLES if counts[role]])
        yield _problem("task.type", f"`cluster` has no `{role}`; it has {have or 'no replicas'}")
    elif indexes and index is not None and index not in indexes:
        if indexes == list(range(len(indexes))):
            only = f"the only {role}" if len(indexes) == 1 else f"the last of {count(len(indexes), role)}"
            last = f"{only} has index {indexes[-1]}"
        else:
            last = f"of `{role}` it lists {listed([str(each) for each in indexes])} only"
        yield _problem("task.index", f"{kind_of(index)} is outside the cluster: {last}")


def _describe(me: ReplicaId, chief: ReplicaId | None, nodes: Mapping[ReplicaId, Node], counts: Counter[str]) -> str:
    """Return a sentence about this replica, its peers and its chief."""

    def at(node: ReplicaId) -> str:
        return f"{node} on {quote(str(nodes[node].value))[1:-1]}" if node in nodes else str(node)

    others = [count(counts[role], role) for role in ROLES if counts[role] and role != me.role]
    if not others and counts[me.role] < 2 and me.index == 0:
        return f"this node is {at(me)}, all alone"
    if not counts["chief"]:
        others.append("no chief")
    if me.role in ("chief", "evaluator"):
        place = f"the {me.role}"
    elif any(node.role == me.role and node.index >= counts[me.role] for node in nodes):
        place = f"one of the replicas of {me.role}"
    elif counts[me.role] == 1:
        place = f"the only {me.role}"
    else:
        place = f"one of {count(counts[me.role], me.role)}"
    words = f"this node is {at(me)}, {place}"
    if others:
        words += f" with {listed(others)}"
    if chief is None:
        return words
    if chief == me:
        return words if me.role == "chief" else f"{words}; it acts as chief"
    return f"{words}; {at(chief)} {'is the' if chief.role == 'chief' else 'acts as'} chief"
