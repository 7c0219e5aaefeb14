"""A run as it goes: changes of state and lines of logs, merged in the order of their times."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Collection, Iterator
from typing import NamedTuple

from drumline.plan.types import ReplicaId, Restart
from drumline.run.event import Exit, ReplicaExited, ReplicaStarted
from drumline.run.failure import describe_exit
from drumline.run.machine import step
from drumline.run.state import Phase, ReplicaState, RunState
from drumline.run.traces import trace_dir
from drumline.store.folder import RunFolder
from drumline.store.journal import Record, read_records
from drumline.store.logs import LogReader


class Lines(NamedTuple):
    """Whole lines of one replica's log that were written by one moment."""

    at: float
    id: str
    data: bytes
    attempt: int = 0
    exact: bool = True


class Change(NamedTuple):
    """A run or a replica has come into another state."""

    at: float
    id: str
    phase: Phase
    attempt: int = 0
    reason: str = ""
    message: str = ""
    exit: Exit | None = None


Item = Lines | Change


def _order(item: Item) -> tuple[float, int, int]:
    """By time; at the same moment who starts comes before its lines, and those before its end."""
    rank = 1 if isinstance(item, Lines) else 2 if item.phase.is_final else 0
    return item.at, item.attempt, rank


class Feed:
    """Follows one run through the store; each `poll` returns what is new."""

    def __init__(
        self, folder: RunFolder, *, replicas: Collection[ReplicaId] | None = None, attempt: int | None = None
    ) -> None:
        self.plan = folder.plan()
        self._without_restart = self.plan._replace(restart=Restart())
        self.state = RunState()
        self._folder = folder
        self._replicas = replicas
        self._attempt = attempt
        self._offset = 0
        self._held: list[Item] = []
        self._readers: dict[tuple[ReplicaId, int], LogReader] = {}
        self._started: dict[tuple[ReplicaId, int], float] = {}
        self._ended: dict[tuple[ReplicaId, int], float] = {}
        self._done: set[tuple[ReplicaId, int]] = set()

    @property
    def is_over(self) -> bool:
        """Whether the run has ended."""
        return self.state.phase.is_final

    def poll(self, now: float) -> list[Item]:
        """Return what happened since the last time, in order; call again until nothing comes."""
        records, self._offset = read_records(self._folder.journal_file, self._offset)
        items = self._held
        for record in records:
            items.extend(self._changes(record))
        horizon = math.inf  # whoever has more to read may still bring something from here on
        for key, reader in self._readers.items():
            if key in self._done or key not in self._started:
                continue
            ended = key in self._ended or self.is_over
            blocks = reader.read(until=now, ended=ended)
            for block in blocks:
                # Marks are made a moment later: no line is older than its replica or younger than its end.
                at = max(self._started[key], min(block.at, self._ended.get(key, block.at)))
                items.append(Lines(at, self._spell(key[0]), block.data, key[1], block.exact))
            if ended and not blocks and not reader.has_more:
                self._done.add(key)
            elif blocks and reader.has_more:
                horizon = min(horizon, blocks[-1].at)
        items.sort(key=_order)
        ready = bisect_right(items, horizon, key=lambda item: item.at)
        self._held = items[ready:]
        return items[:ready]

    def unfinished(self) -> dict[str, bytes]:
        """The lines that have begun and not ended, by replica: progress bars."""
        return {
            self._spell(key[0]): reader.unfinished
            for key, reader in self._readers.items()
            if key not in self._done and reader.unfinished
        }

    def _changes(self, record: Record) -> list[Item]:
        before, event = self.state, record.event
        self.state, _ = step(self.plan, before, event)
        after = self.state
        restarted = after.attempt != before.attempt
        # The end that leads to a restart is of the attempt before: look at it as if there were none.
        same = step(self._without_restart, before, event)[0] if restarted else after
        items: list[Item] = []
        if not restarted and after.phase != before.phase and not after.phase.is_final:
            items.append(Change(record.at, self._folder.id, after.phase, after.attempt))
        touched = (event.replica,) if isinstance(event, ReplicaStarted | ReplicaExited) else tuple(same.replicas)
        for replica in touched:
            old, new = before.replicas.get(replica), same.replicas.get(replica)
            if new is not None and new != old:
                items.extend(self._replica_change(record.at, replica, same.attempt, old, new))
        if restarted:
            for replica in before.replicas:
                self._ended.setdefault((replica, before.attempt), record.at)
            items.append(self._restarting(record.at, after))
        elif after.phase != before.phase and after.phase.is_final:
            items.append(self._final(record.at, after))
        if restarted or not before.replicas:
            self._open_logs(after.attempt)
        return items

    def _replica_change(
        self, at: float, replica: ReplicaId, attempt: int, old: ReplicaState | None, new: ReplicaState
    ) -> Iterator[Item]:
        if new.phase not in (Phase.PENDING, Phase.STARTING):
            self._started.setdefault((replica, attempt), at)
        if new.phase.is_final:
            self._ended.setdefault((replica, attempt), at)
        shown = self._wanted(replica) and self._attempt in (None, attempt) and new.phase is not Phase.PENDING
        if shown and (old is None or old.phase != new.phase):
            message = new.exit.message if new.exit else ""
            yield Change(at, self._spell(replica), new.phase, attempt, new.reason, message, new.exit)

    def _open_logs(self, attempt: int) -> None:
        if self._attempt is not None and attempt != self._attempt:
            return
        for replica in self.plan.replicas:
            if self._wanted(replica.id):
                folder = self._folder.path / trace_dir(replica.id, attempt)
                self._readers[replica.id, attempt] = LogReader(folder)

    def _wanted(self, replica: ReplicaId) -> bool:
        return self._replicas is None or replica in self._replicas

    def _restarting(self, at: float, state: RunState) -> Change:
        cause = state.causes[-1]
        who = f"{self._spell(cause.replica)}: " if cause.replica else ""
        message = f"{who}{describe_exit(cause.exit)}; attempt {state.attempt} begins"
        return Change(at, self._folder.id, Phase.RESTARTING, state.attempt, cause.reason, message)

    def _final(self, at: float, state: RunState) -> Change:
        ending = state.ending
        message = ""
        if ending and ending.cause:
            who = f"{self._spell(ending.cause.replica)} " if ending.cause.replica else ""
            message = f"{who}{describe_exit(ending.cause.exit)}".strip()
        return Change(at, self._folder.id, state.phase, state.attempt, ending.reason if ending else "", message)

    def _spell(self, replica: ReplicaId | None) -> str:
        return f"{self._folder.id}.{replica}" if replica else self._folder.id
