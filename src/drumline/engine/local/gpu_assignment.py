"""The GPUs of a run, assigned to its replicas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import islice

from drumline.plan.types import COMPUTING, Placement, Plan, ReplicaId
from drumline.record import Record
from drumline.words import count, listed


class GpuAssignment(Record):
    """The GPUs that each replica sees, and warnings about them; a replica that is not in `gpus` sees all GPUs."""

    gpus: Mapping[ReplicaId, tuple[str, ...]] = {}
    shared: frozenset[ReplicaId] = frozenset()
    warnings: tuple[str, ...] = ()

    def apply(self, placement: Placement) -> Placement:
        """Return the placement with the GPUs that each replica sees."""
        return {
            name: place.replace(gpus=self.gpus.get(name), gpus_shared=name in self.shared)
            for name, place in placement.items()
        }


def assign_gpus(plan: Plan, machine: Sequence[str], own: Sequence[str], taken: Collection[str]) -> GpuAssignment:
    """Assign the GPUs in `own` to the replicas that ask for some; the other replicas that train share the free GPUs.

    `own` are claimed for this run, `taken` by other runs. Replicas that ask for 0 GPUs, and those that do not train and
    ask for none, see none.
    """
    claimed = iter(own)
    gpus = {
        replica.id: tuple(dict.fromkeys(islice(claimed, replica.resources.gpus)))
        for replica in plan.replicas
        if replica.resources.gpus is not None
    }
    warnings: list[str] = []
    if machine:
        unspecified = [replica.id for replica in plan.replicas if replica.resources.gpus is None]
        gpus |= dict.fromkeys(unspecified, ())
        sharers = [name for name in unspecified if name.role in COMPUTING]
        free = [gpu for gpu in machine if gpu not in taken and gpu not in own]
        if sharers and not free:
            warnings.append(
                f"every GPU is claimed, so {_named(sharers)} {'see' if len(sharers) > 1 else 'sees'} none;"
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
        warnings.append(f"{_named(sorted(shared))} {verb} {count(len(common), 'GPU')}{others}")
    return GpuAssignment(gpus, shared, tuple(warnings))


def _named(replicas: Sequence[ReplicaId]) -> str:
    return listed([str(name) for name in replicas]) if len(replicas) <= 4 else count(len(replicas), "replica")
