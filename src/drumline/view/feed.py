"""A run as it goes: changes of state and lines of logs, merged in the order of their times."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Collection
from typing import NamedTuple

from drumline.plan.types import ReplicaId
from drumline.run.event import Exit
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
    exact: bool = True


class Change(NamedTuple):
    """A run or a replica has come into another state."""

    at: float
    id: str
    phase: Phase
    reason: str = ""
    message: str = ""
    exit: Exit | None = None


Item = Lines | Change


class Feed:
    """Follows one run through the store; each `poll` returns what is new."""

    def __init__(
        self, folder: RunFolder, *, replicas: Collection[ReplicaId] | None = None, attempt: int | None = None
    ) -> None:
        self.plan = folder.plan()
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
                items.append(Lines(at, self._spell(key[0]), block.data, block.exact))
            if ended and not blocks and not reader.has_more:
                self._done.add(key)
            elif blocks and reader.has_more:
                horizon = min(horizon, blocks[-1].at)
        # A replica's last lines come before the word that it has ended, even where their times are the same.
        items.sort(key=lambda item: (item.at, isinstance(item, Change) and item.phase.is_final))
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
        before = self.state
        self.state, _ = step(self.plan, before, record.event)
        after = self.state
        if after.attempt != before.attempt or not before.replicas:
            self._open_logs(after.attempt)
        for replica, state in after.replicas.items():
            if state.phase not in (Phase.PENDING, Phase.STARTING):
                self._started.setdefault((replica, after.attempt), record.at)
            if state.phase.is_final:
                self._ended.setdefault((replica, after.attempt), record.at)
        shown = self._attempt is None or self._attempt == after.attempt
        items: list[Item] = []
        if after.attempt != before.attempt:
            items.append(self._restarting(record.at, after))
        elif after.phase != before.phase and not after.phase.is_final:
            items.append(Change(record.at, self._folder.id, after.phase))
        if shown and after.attempt == before.attempt:
            for replica, state in after.replicas.items():
                old = before.replicas.get(replica)
                if (
                    (old is None or old.phase != state.phase)
                    and self._wanted(replica)
                    and state.phase is not Phase.PENDING
                ):
                    items.append(self._replica_change(record.at, replica, state))
        if after.phase != before.phase and after.phase.is_final:
            items.append(self._final(record.at, after))
        return items

    def _open_logs(self, attempt: int) -> None:
        if self._attempt is not None and attempt != self._attempt:
            return
        for replica in self.plan.replicas:
            if self._wanted(replica.id):
                folder = self._folder.path / trace_dir(replica.id, attempt)
                self._readers[replica.id, attempt] = LogReader(folder)

    def _wanted(self, replica: ReplicaId) -> bool:
        return self._replicas is None or replica in self._replicas

    def _replica_change(self, at: float, replica: ReplicaId, state: ReplicaState) -> Change:
        message = state.exit.message if state.exit else ""
        return Change(at, self._spell(replica), state.phase, state.reason, message, state.exit)

    def _restarting(self, at: float, state: RunState) -> Change:
        cause = state.causes[-1]
        who = f"{self._spell(cause.replica)}: " if cause.replica else ""
        message = f"{who}{describe_exit(cause.exit)}; attempt {state.attempt} begins"
        return Change(at, self._folder.id, Phase.RESTARTING, cause.reason, message)

    def _final(self, at: float, state: RunState) -> Change:
        ending = state.ending
        message = ""
        if ending and ending.cause:
            who = f"{self._spell(ending.cause.replica)} " if ending.cause.replica else ""
            message = f"{who}{describe_exit(ending.cause.exit)}".strip()
        return Change(at, self._folder.id, state.phase, ending.reason if ending else "", message)

    def _spell(self, replica: ReplicaId | None) -> str:
        return f"{self._folder.id}.{replica}" if replica else self._folder.id
