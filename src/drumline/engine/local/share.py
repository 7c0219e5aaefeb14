"""GPUs, divided between the replicas of a line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import islice

from drumline.plan.types import COMPUTING, Placement, Plan, ReplicaId
from drumline.record import Record
from drumline.words import count, listed


class Division(Record):
    """The GPUs that each replica sees, where there is anything to say, and what its user should know about it."""

    gpus: Mapping[ReplicaId, tuple[str, ...]] = {}
    shared: frozenset[ReplicaId] = frozenset()
    remarks: tuple[str, ...] = ()

    def apply(self, placement: Placement) -> Placement:
        """Return the placement with the GPUs that each replica sees."""
        return {
            name: place.replace(gpus=self.gpus.get(name), gpus_shared=name in self.shared)
            for name, place in placement.items()
        }


def divide(plan: Plan, machine: Sequence[str], own: Sequence[str], taken: Collection[str]) -> Division:
    """Give everybody what it asked for out of `own`; who said nothing and computes has an even share of the rest.

    `own` are claimed for this line, `taken` by others. Who asked for none, and who does not compute, sees none.
    """
    claimed = iter(own)
    gpus = {
        replica.id: tuple(dict.fromkeys(islice(claimed, replica.resources.gpus)))
        for replica in plan.replicas
        if replica.resources.gpus is not None
    }
    remarks: list[str] = []
    if machine:
        unsaid = [replica.id for replica in plan.replicas if replica.resources.gpus is None]
        gpus |= dict.fromkeys(unsaid, ())
        sharers = [name for name in unsaid if name.role in COMPUTING]
        free = [gpu for gpu in machine if gpu not in taken and gpu not in own]
        if sharers and not free:
            remarks.append(
                f"every GPU is claimed, so that {_named(sharers)} {'see' if len(sharers) > 1 else 'sees'} none;"
                " with `resources: {gpus: 1}` a run waits for one"
            )
        elif sharers:
            each = len(free) // len(sharers)
            for number, name in enumerate(sharers):
                gpus[name] = tuple(free[number * each : (number + 1) * each]) or (free[number % len(free)],)
    seen = Counter(gpu for several in gpus.values() for gpu in several)
    common = {gpu for gpu, times in seen.items() if times > 1 or gpu in taken}
    shared = frozenset(name for name, several in gpus.items() if common.intersection(several))
    if shared:
        others = " with other runs" if common.intersection(taken) else ""
        verb = "share" if len(shared) > 1 else "shares"
        remarks.append(f"{_named(sorted(shared))} {verb} {count(len(common), 'GPU')}{others}")
    return Division(gpus, shared, tuple(remarks))


def _named(replicas: Sequence[ReplicaId]) -> str:
    return listed([str(name) for name in replicas]) if len(replicas) <= 4 else count(len(replicas), "replica")
