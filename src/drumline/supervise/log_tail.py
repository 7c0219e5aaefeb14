"""Read the end of a replica's log when the replica has ended, so that its evidence is recorded with the exit.

The state of a run depends only on the journal, never on logs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from drumline.plan.rendezvous.rank import ranks
from drumline.plan.types import Plan
from drumline.run.event import ReplicaExited
from drumline.run.evidence import TAIL_BYTES, Peers, read_evidence
from drumline.run.traces import LOG, trace_dir
from drumline.store.logs import read_end

_MOST = 64  # logs of an attempt; when thousands of replicas fail, the first ones suffice


class LogTailReader:
    """Reads the ends of the logs of at most 64 replicas in each attempt."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self._folder, self._plan = folder, plan
        self._ranks = tuple(ranks(plan))
        self._read: Counter[int] = Counter()

    def with_evidence(self, event: ReplicaExited, addresses: Sequence[str]) -> ReplicaExited:
        """Return the event with the evidence that the end of the replica's log has, if any.

        `addresses` are those of the plan's replicas, in the same order.
        """
        self._read[event.attempt] += 1
        if self._read[event.attempt] > _MOST:
            return event
        log = self._folder / trace_dir(event.replica, event.attempt, event.incarnation) / LOG
        places = dict(zip(addresses, (replica.id for replica in self._plan.replicas), strict=False))
        peers = Peers(event.replica, self._ranks, places, self._plan.chief)
        return event.replace(evidence=read_evidence(read_end(log, TAIL_BYTES)[0], peers))
