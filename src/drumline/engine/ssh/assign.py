"""Assign replicas to hosts: evenly, in blocks, within the resources of each host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf

from drumline.engine.ssh.plan_options import Host, hosts_of
from drumline.errors import InputError
from drumline.plan.types import COMPUTING, Plan, Replica, ReplicaId, Resources
from drumline.record import Record
from drumline.words import count, listed, size

_MOST_NAMED = 5  # hosts in a message
_MOST_PACKED = 500  # replicas in a plan for which an assignment is searched
_MOST_TRIED = 20_000  # attempts to put a replica on a host, before the plan counts as one that does not fit


class HostResources(Record):
    """The resources of a host; None is unlimited."""

    cpus: float | None = None
    memory_bytes: int | None = None
    gpus: int | None = None


def usable_resources(host: Host, found: HostResources | None = None) -> HostResources:
    """Return the resources of a host that may be used: those that the spec sets, else those that the host has."""
    found = found or HostResources()
    return HostResources(
        found.cpus if host.cpus is None else host.cpus,
        found.memory_bytes if host.memory_bytes is None else host.memory_bytes,
        found.gpus if host.gpus is None else host.gpus,
    )


def assign(plan: Plan, resources: Mapping[str, HostResources]) -> dict[ReplicaId, str]:
    """Assign every replica to one of these hosts, deterministically; raise InputError with the missing resources.

    The chief and the workers are spread evenly, the chief first; those with consecutive indexes and equal resources
    share a host where possible. Parameter servers and the evaluator are spread over the same hosts. A plan that may
    oversubscribe always fits.
    """
    if not resources:
        raise InputError("there is no host that it could run on")
    names = tuple(resources)
    pinned = _pinned(plan, names)
    left = _without_pinned(plan, names, [_amount(each) for each in resources.values()], pinned)
    others = [replica for replica in plan.replicas if replica.id not in pinned]
    spread = _spread(others, left)
    found = _pack(others, left) if spread.stuck else spread.found
    if found is None and plan.oversubscribe:
        found = _spread(others, [(inf, inf, inf)] * len(left)).found
    if found is None:
        rest = plan.replace(replicas=tuple(others))
        raise InputError(_missing(rest, names, left, spread), hint=_HINT)
    dealt = {**_in_blocks(others, found), **pinned}
    return {replica.id: names[dealt[replica.id]] for replica in plan.replicas}


def part_of(plan: Plan, host: Host, assigned: Mapping[ReplicaId, str]) -> Plan:
    """Return the plan of one host: only its replicas, with ports counted up from the host's `port` if it has one."""
    there = [replica for replica in plan.replicas if assigned[replica.id] == host.name]
    if host.port is not None:
        there = [each if each.port_fixed else each.replace(port=host.port) for each in there]
    return plan.replace(replicas=tuple(there))


_HINT = "ask for less, name more hosts, or insist with `--oversubscribe`"
_Amount = tuple[float, float, float]  # of gpus, memory and cpus: the scarcest first
_Hosts = dict[ReplicaId, int]


class _Spread(Record):
    """The host of each placed replica, the first replica that fits on no host, and the remaining resources by host."""

    found: _Hosts
    stuck: Replica | None
    left: list[_Amount]


def _amount(resources: HostResources) -> _Amount:
    amounts = (resources.gpus, resources.memory_bytes, resources.cpus)
    gpus, memory, cpus = (inf if each is None else float(each) for each in amounts)
    return gpus, memory, cpus


def _asked(replica: Replica) -> _Amount:
    resources = replica.resources
    return float(resources.gpus or 0), float(resources.memory_bytes or 0), resources.cpus or 0.0


def _fits(asked: _Amount, left: _Amount) -> bool:
    # Tenths of a core do not add up exactly.
    return asked[0] <= left[0] and asked[1] <= left[1] and asked[2] <= left[2] + 1e-9


def _less(left: _Amount, asked: _Amount) -> _Amount:
    return left[0] - asked[0], left[1] - asked[1], left[2] - asked[2]


def _pinned(plan: Plan, names: Sequence[str]) -> _Hosts:
    """Return the host of each replica that is pinned to an available host."""
    pins = hosts_of(plan).pins
    wanted = {replica.id: pins.get(str(replica.id)) for replica in plan.replicas} if pins else {}
    return {replica: names.index(host) for replica, host in wanted.items() if host in names}


def _without_pinned(plan: Plan, names: Sequence[str], amounts: list[_Amount], pinned: _Hosts) -> list[_Amount]:
    """Return the resources of each host without those of pinned replicas."""
    left = list(amounts)
    for replica in plan.replicas:
        if (host := pinned.get(replica.id)) is None:
            continue
        if not _fits(_asked(replica), left[host]) and not plan.oversubscribe:
            raise InputError(f"{replica.id} has to be on {names[host]}, which has not enough left for it", hint=_HINT)
        left[host] = _less(left[host], _asked(replica))
    return left


def _kind(replica: Replica) -> str:
    return "computing" if replica.id.role in COMPUTING else replica.id.role


_ORDER = {"computing": 0, "evaluator": 1, "ps": 2}


def _spread(replicas: Sequence[Replica], amounts: Sequence[_Amount]) -> _Spread:
    """Place each replica on the host with the fewest of its kind, then with the fewest in all.

    The chief and the workers are placed first.
    """
    left, total = list(amounts), [0] * len(amounts)
    per_kind: dict[str, list[int]] = {}
    found: _Hosts = {}
    for replica in sorted(replicas, key=lambda each: _ORDER[_kind(each)]):
        asked, same = _asked(replica), per_kind.setdefault(_kind(replica), [0] * len(amounts))
        chosen = min(
            ((same[host], total[host], host) for host, amount in enumerate(left) if _fits(asked, amount)), default=None
        )
        if chosen is None:
            return _Spread(found, replica, left)
        host = chosen[-1]
        left[host] = _less(left[host], asked)
        same[host] += 1
        total[host] += 1
        found[replica.id] = host
    return _Spread(found, None, left)


def _pack(replicas: Sequence[Replica], amounts: Sequence[_Amount]) -> _Hosts | None:
    """Place the largest replicas first, each on the host with the least remaining resources; backtrack if one fails.

    Return None if no assignment is found within `_MOST_TRIED` attempts.
    """
    if len(replicas) > _MOST_PACKED:
        return None
    ordered = sorted(replicas, key=_asked, reverse=True)
    found = _search([_asked(each) for each in ordered], list(amounts), iter(range(_MOST_TRIED)))
    return None if found is None else {replica.id: host for replica, host in zip(ordered, found, strict=True)}


def _search(asked: Sequence[_Amount], left: list[_Amount], tries: Iterator[int]) -> list[int] | None:
    if not asked:
        return []
    # Of hosts with equal remaining resources only the first is tried.
    hosts = {amount: host for host, amount in reversed(list(enumerate(left))) if _fits(asked[0], amount)}
    for amount, host in sorted(hosts.items()):
        if next(tries, None) is None:
            return None
        left[host] = _less(amount, asked[0])
        rest = _search(asked[1:], left, tries)
        left[host] = amount
        if rest is not None:
            return [host, *rest]
    return None


def _in_blocks(replicas: Sequence[Replica], found: _Hosts) -> _Hosts:
    """Exchange replicas of one kind with equal resources, so that consecutive ones share a host."""
    alike: dict[tuple[str, Resources], list[ReplicaId]] = {}
    for replica in replicas:
        alike.setdefault((_kind(replica), replica.resources), []).append(replica.id)
    dealt: _Hosts = {}
    for ids in alike.values():
        dealt |= zip(ids, sorted(found[each] for each in ids), strict=True)
    return dealt


def _missing(plan: Plan, names: Sequence[str], amounts: Sequence[_Amount], spread: _Spread) -> str:
    """Return why a plan does not fit: one replica asks for too much, all together do, or no host has enough left."""
    asked = [_asked(replica) for replica in plan.replicas]
    for what in range(3):
        most, there = max(each[what] for each in asked), max(amount[what] for amount in amounts)
        if most > there:
            largest = next(replica.id for replica, each in zip(plan.replicas, asked, strict=True) if each[what] == most)
            return f"{largest} asks for {_spell(what, most)}, and no host has more than {_spell(what, there)}"
    for what in range(3):
        wanted, there = sum(each[what] for each in asked), sum(amount[what] for amount in amounts)
        if wanted > there + 1e-9:
            has = f"{count(len(names), 'host')} have {_spell(what, there)}"
            each_has = _each([what] * len(names), names, amounts)
            missing = f"{_spell(what, wanted - there)} are missing"
            return f"the run asks for {_spell(what, wanted)}, and {has}: {each_has}; {missing}"
    assert spread.stuck
    wants = _asked(spread.stuck)
    short = [next(what for what in range(3) if not wants[what] <= left[what]) for left in spread.left]
    wanted_words = listed([_spell(what, wants[what]) for what in range(3) if wants[what]])
    return f"{spread.stuck.id} asks for {wanted_words}, and the others leave only {_each(short, names, spread.left)}"


def _each(whats: Sequence[int], names: Sequence[str], amounts: Sequence[_Amount]) -> str:
    words = [f"{_spell(what, each[what])} on {name}" for what, name, each in zip(whats, names, amounts, strict=True)]
    more = len(words) - _MOST_NAMED
    return ", ".join([*words[:_MOST_NAMED], f"and so on, on {count(more, 'host')} more"] if more > 0 else words)


def _spell(what: int, amount: float) -> str:
    if what == 1:
        return f"{size(round(amount))} of memory"
    noun = "gpu" if what == 0 else "cpu"
    return f"{round(amount, 3):g} {noun}{'' if amount == 1 else 's'}"
