"""The order in which runs get the resources that they claim: by run number, as far as resources are free. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import cycle, islice

from drumline.engine.protocol import Capacity
from drumline.plan.types import Plan, Resources
from drumline.record import Record, field_names, to_dict
from drumline.words import count, listed, size


class Claim(Record):
    """The resources that a run asks for; `cpus` is in thousandths of a CPU, so that sums are exact."""

    cpus: int = 0
    memory_bytes: int = 0
    gpus: int = 0


class ClaimEntry(Record):
    """A run in the registry: its claim, whether it holds the claimed resources, and the GPUs that it holds."""

    run: str
    claim: Claim
    holds: bool
    gpus: tuple[str, ...] = ()


def total_claim(plan: Plan) -> Claim:
    """Return the sum of the resources that the replicas of a plan ask for."""
    claims = [to_dict(_claim(replica.resources)) for replica in plan.replicas]
    return Claim(**{kind: sum(each[kind] for each in claims) for kind in field_names(Claim)})


def describe_excess(plan: Plan, capacity: Capacity) -> Iterator[str]:
    """Yield a message for each kind of resource that the plan requests beyond this capacity."""
    most = _all_of(capacity)
    for kind, wanted in to_dict(total_claim(plan)).items():
        if wanted > most[kind]:
            asking = Counter((replica.id.role, getattr(_claim(replica.resources), kind)) for replica in plan.replicas)
            parts = [
                f"{count(n, role)} with {_amount(kind, one)}{' each' if n > 1 else ''}"
                for (role, one), n in asking.items()
                if one
            ]
            has = _amount(kind, most[kind]) if most[kind] else "none"
            yield f"the run asks for {_spell(kind, wanted)} ({listed(parts)}), but this machine has {has}"


def waiting_reason(run: str, claim: Claim, others: Iterable[ClaimEntry], capacity: Capacity) -> str:
    """Return a message about the resources and the runs that a run waits for; "" if it may begin.

    A run may begin if its claim fits into the resources that are left by the runs that hold some and by the earlier
    runs that wait. So a later run overtakes only if that delays no earlier run, and the result does not depend on the
    order of the calls.
    """
    others = sorted(others, key=lambda entry: queue_order(entry.run))
    most, free = _all_of(capacity), _free(others, capacity)
    earlier = [entry for entry in others if not entry.holds and queue_order(entry.run) < queue_order(run)]
    short, behind, kinds = [], [], []
    for kind, wanted in to_dict(claim).items():
        before = [entry for entry in earlier if getattr(entry.claim, kind)]
        reserved = sum(getattr(entry.claim, kind) for entry in before)
        if not wanted or wanted <= free[kind] - reserved:
            continue
        kinds.append(kind)
        behind += [entry for entry in before if entry not in behind]
        if wanted > free[kind]:
            holders = [entry.run for entry in others if entry.holds and getattr(entry.claim, kind)]
            verb = "have" if len(holders) > 1 else "has"
            has = f", {_runs(holders)} {verb} {_amount(kind, most[kind] - free[kind])}" if holders else ""
            short.append(f"for {_amount(kind, wanted)} of {_spell(kind, most[kind])}{has}")
    queue = f"behind {_runs([entry.run for entry in behind])}" if behind else ""
    if short:
        return f"waits {'; '.join(filter(None, (*short, queue)))}"
    if not behind:
        return ""
    what = listed([_spell(kind, sum(getattr(entry.claim, kind) for entry in behind)) for kind in kinds])
    return f"waits {queue}, which {'wait' if len(behind) > 1 else 'waits'} for {what}"


def choose_gpus(claim: Claim, others: Iterable[ClaimEntry], capacity: Capacity) -> tuple[str, ...]:
    """Return the GPUs for a run that begins now: free ones first; if there are too few, GPUs are shared."""
    taken = held_gpus(others)
    by_use = sorted(capacity.gpus, key=taken.__contains__)
    return tuple(islice(cycle(by_use), claim.gpus))


def held_gpus(entries: Iterable[ClaimEntry]) -> frozenset[str]:
    """Return the GPUs that runs hold."""
    return frozenset(gpu for entry in entries if entry.holds for gpu in entry.gpus)


def queue_order(run: str) -> tuple[int, ...]:
    """Return the sort key of a run in the queue: the parts of its id as numbers."""
    return tuple(int(part) if part.isdecimal() else int(part, 36) for part in run.split("."))


def _claim(resources: Resources) -> Claim:
    return Claim(round((resources.cpus or 0) * 1000), resources.memory_bytes or 0, resources.gpus or 0)


def _all_of(capacity: Capacity) -> dict[str, int]:
    return {"cpus": int(capacity.cpus * 1000), "memory_bytes": capacity.memory_bytes, "gpus": len(capacity.gpus)}


def _free(entries: Iterable[ClaimEntry], capacity: Capacity) -> dict[str, int]:
    """Return the free amount of each kind of resource; negative if runs oversubscribed."""
    free, holders = _all_of(capacity), [entry for entry in entries if entry.holds]
    for kind in ("cpus", "memory_bytes"):
        free[kind] -= sum(getattr(entry.claim, kind) for entry in holders)
    free["gpus"] -= len(held_gpus(holders).intersection(capacity.gpus))
    return free


def _amount(kind: str, amount: int) -> str:
    return size(amount) if kind == "memory_bytes" else f"{amount / 1000:g}" if kind == "cpus" else str(amount)


def _spell(kind: str, amount: int) -> str:
    text = _amount(kind, amount)
    return f"{text} {'of memory' if kind == 'memory_bytes' else kind.removesuffix('s') if text == '1' else kind}"


def _runs(runs: Sequence[str]) -> str:
    return f"run {runs[0]}" if len(runs) == 1 else f"runs {listed(runs)}"
