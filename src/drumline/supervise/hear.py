"""Hears what a replica said at its end, before that is written down: a run's state must not depend on its logs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from drumline.plan.rendezvous.world import ranks
from drumline.plan.types import Plan
from drumline.run.event import ReplicaExited
from drumline.run.evidence import TAIL_BYTES, Peers, read_evidence
from drumline.run.traces import LOG, trace_dir
from drumline.store.logs import read_end

_MOST = 64  # of an attempt; of thousands that fall the first ones say it all


class Listener:
    """Reads the ends of logs, of so many for each attempt."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self._folder, self._plan = folder, plan
        self._ranks = tuple(ranks(plan))
        self._heard: Counter[int] = Counter()

    def hear(self, event: ReplicaExited, addresses: Sequence[str]) -> ReplicaExited:
        """The same end with what the replica said, if it said something."""
        self._heard[event.attempt] += 1
        if self._heard[event.attempt] > _MOST:
            return event
        log = self._folder / trace_dir(event.replica, event.attempt, event.incarnation) / LOG
        places = dict(zip(addresses, (replica.id for replica in self._plan.replicas), strict=False))
        peers = Peers(event.replica, self._ranks, places, self._plan.chief)
        return event.replace(evidence=read_evidence(read_end(log, TAIL_BYTES)[0], peers))
