"""Find replicas that are certainly well behind the others, or much slower."""

from __future__ import annotations

import math
from collections.abc import Mapping

from drumline.plan.types import ReplicaId
from drumline.view.replica_progress import ReplicaProgress

_BEHIND_SHARE, _BEHIND_STEPS = 0.2, 3
_SLOW_SHARE = 0.7  # of the median pace
# A pace is compared only if it was measured for so many seconds, and so many steps or epochs: the first steps are slow.
_MEASURED_SECONDS, _MEASURED_COUNTS = 10.0, 10
_TRAINING_ROLES = ("chief", "worker")


def find_stragglers(by_replica: Mapping[ReplicaId, ReplicaProgress], ages: Mapping[ReplicaId, float]) -> set[ReplicaId]:
    """Return the replicas that are well behind the median, or much slower.

    `ages` has the seconds for which each running replica has run. Steps in a log may restart with each epoch, and are
    compared only within a known epoch. A replica without recent output counts with the steps that it may have taken
    since; a replica with other output at the end of its log is not compared. Paces are compared if they were measured
    for long enough.
    """
    running = {name: each for name, each in by_replica.items() if name.role in _TRAINING_ROLES and name in ages}
    return _find_late(running, ages) | _find_slow(running)


def _find_late(by_replica: Mapping[ReplicaId, ReplicaProgress], ages: Mapping[ReplicaId, float]) -> set[ReplicaId]:
    alike: dict[object, list[ReplicaId]] = {}
    for name, replica_progress in by_replica.items():
        progress = replica_progress.progress
        if progress.step is None or not progress.is_latest:
            continue
        if replica_progress.is_global or progress.epoch is not None:
            unit = None if replica_progress.is_global else (progress.epoch, progress.epochs, progress.steps)
            alike.setdefault(unit, []).append(name)
    late: set[ReplicaId] = set()
    for names in alike.values():
        names.sort(key=lambda name: by_replica[name].progress.step or 0)
        middle = by_replica[names[len(names) // 2]]
        step = middle.progress.step or 0
        enough = max(_BEHIND_SHARE * step, _BEHIND_STEPS)
        late.update(
            name for name in names if step - _most_steps_by(by_replica[name], ages[name], middle.at or 0.0) > enough
        )
    return late


def _find_slow(by_replica: Mapping[ReplicaId, ReplicaProgress]) -> set[ReplicaId]:
    alike: dict[object, list[tuple[float, ReplicaId]]] = {}
    for name, replica_progress in by_replica.items():
        pace, progress = replica_progress.pace, replica_progress.progress
        if pace and pace.seconds >= _MEASURED_SECONDS and pace.counts >= _MEASURED_COUNTS:
            unit = replica_progress.is_reported, progress.step is None, progress.steps
            alike.setdefault(unit, []).append((pace.rate, name))
    slow: set[ReplicaId] = set()
    for paces in alike.values():
        middle = sorted(rate for rate, _ in paces)[len(paces) // 2]
        slow.update(name for rate, name in paces if rate < _SLOW_SHARE * middle)
    return slow


def _most_steps_by(replica_progress: ReplicaProgress, age: float, then: float) -> float:
    """Return the step that a replica may have reached at the time `then`, at twice its pace."""
    progress, silence = replica_progress.progress, then - (replica_progress.at or 0.0)
    step = progress.step or 0
    if silence <= 0:
        return step
    if progress.rate:
        return step + 2 * progress.rate * silence
    if not replica_progress.is_global or silence >= age:
        return math.inf
    return step * (1 + 2 * silence / (age - silence))
