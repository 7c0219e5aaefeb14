"""A run as it goes: changes of state and lines of logs, merged in the order of their times."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Collection, Iterator
from pathlib import Path

from drumline.plan.types import TENSORBOARD, ReplicaId
from drumline.record import Record
from drumline.run.describe import describe_revival
from drumline.run.entry import Entry
from drumline.run.event import (
    Cause,
    Event,
    Exit,
    ProjectCarried,
    ReplicaExited,
    ReplicaStarted,
    ReplicaWaits,
    StepsResumed,
    StepsStalled,
)
from drumline.run.failure import reason_of
from drumline.run.fold import fold_entry, new_run
from drumline.run.resume import PREEMPTED
from drumline.run.stall import describe_stall
from drumline.run.state import Phase, ReplicaState, RunState
from drumline.run.traces import trace_dir
from drumline.store.folder import RunFolder
from drumline.store.journal import JournalReader
from drumline.store.logs import LogReader
from drumline.store.summary import spell_verdict
from drumline.view.incarnation import IncarnationTraces
from drumline.words import count, decimal_size, format_duration, printable


class Lines(Record):
    """Whole lines of one replica's log that were written by one moment; or what drumline says of the run itself."""

    at: float
    id: str
    data: bytes
    attempt: int = 0
    exact: bool = True
    life: int = 0  # in this attempt
    is_from_log: bool = True


class Change(Record):
    """A run or a replica has come into another state."""

    at: float
    id: str
    phase: Phase
    attempt: int = 0
    reason: str = ""
    message: str = ""
    exit: Exit | None = None
    life: int = 0  # in this attempt


Item = Lines | Change

# Read at once: of all logs together, and of each, however many there are.
_BYTES_OF_ALL = 1 << 22
_BYTES_OF_EACH = 1 << 16


class _Log:
    """One life's log, and what was read of it and not shown yet."""

    def __init__(self, name: str, attempt: int, life: int, folder: Path) -> None:
        self.id = name
        self.attempt = attempt
        self.life = life
        self.folder = folder
        self.reader = LogReader(folder)
        self.started: float | None = None
        self.ended: float | None = None
        self.waiting: list[Lines] = []
        self.done = False
        self._last = 0.0

    def read(self, now: float, *, over: bool, size: int) -> None:
        """Read on, unless what was read is still waiting; `size` bytes are enough."""
        if self.done or self.started is None or self.waiting:
            return
        ended = over or self.ended is not None
        for block in self.reader.read(until=now, ended=ended, size=size):
            # Marks are made a moment later: no line is older than its replica or younger than its end. Nor is one
            # older than the line before it, whatever was done to the clock.
            self._last = max(self._last, self.started, block.at)
            at = self._last if self.ended is None else min(self._last, self.ended)
            self.waiting.append(Lines(at, self.id, block.data, self.attempt, block.exact, self.life))
        self.done = ended and not self.waiting and not self.reader.has_more

    def take(self, horizon: float) -> list[Lines]:
        """What is not younger than this."""
        ready = bisect_right(self.waiting, horizon, key=lambda item: item.at)
        taken, self.waiting = self.waiting[:ready], self.waiting[ready:]
        return taken


def _order(item: Item) -> tuple[float, int, int, int]:
    """By time; at the same moment who starts comes before its lines, those before its end, that before its return.

    What the journal has of one moment stays in its order: clocks of hosts are not ours, and what they say was earlier
    than the record before it happened at that record's moment.
    """
    rank = int(item.is_from_log) if isinstance(item, Lines) else 2 if item.phase.is_final or item.exit else 0
    return item.at, item.attempt, item.life, rank


class Feed:
    """Follows one run through the store, all of it or from an attempt on; each `poll` returns what is new."""

    def __init__(
        self,
        folder: RunFolder,
        *,
        replicas: Collection[ReplicaId] | None = None,
        attempt: int | None = None,
        since: int = 0,
    ) -> None:
        self.plan = folder.plan()
        self.state = new_run(self.plan)
        self._folder = folder
        self._replicas = replicas
        self._attempt = attempt
        self._since = since
        self._journal = JournalReader(folder.journal_file, self.plan)
        self._moment = 0.0  # of the last record; the clock on the wall may go back, a run does not
        self._stalled_at = 0.0  # when a stalled run took its last step
        self._held: list[Item] = []
        self._logs: dict[tuple[ReplicaId, int, int], _Log] = {}  # by replica, attempt and incarnation

    @property
    def is_over(self) -> bool:
        """Whether the run has ended."""
        return self.state.phase.is_final

    @property
    def final_cause(self) -> Cause | None:
        """The cause of a run that has failed or fails for good, as soon as it is known."""
        return self.state.known_cause

    def stalled(self, now: float) -> StepsStalled | None:
        """Return the stall of a run that takes no steps, its `seconds` up to now; None of any other."""
        stalled = self.state.stalled
        if stalled is None or self.state.ending:
            return None
        return stalled.replace(seconds=max(stalled.seconds, now - self._stalled_at))

    def poll(self, now: float) -> list[Item]:
        """Return what happened since the last time, in order; call again until nothing comes."""
        items = self._held
        for record in self._journal.read():
            self._moment = max(self._moment, record.at)
            if isinstance(record.event, StepsStalled):
                self._stalled_at = self._moment - record.event.seconds
            items.extend(self._changes(record, self._moment))
        logs = [log for log in self._logs.values() if not log.done]
        size = max(_BYTES_OF_EACH, _BYTES_OF_ALL // max(1, len(logs)))
        horizon = math.inf  # whoever has more to read may still bring something from here on
        for log in logs:
            log.read(now, over=self.is_over, size=size)
            if log.waiting and log.reader.has_more:
                horizon = min(horizon, log.waiting[-1].at)
        for log in logs:
            items.extend(log.take(horizon))
        items.sort(key=_order)
        ready = bisect_right(items, horizon, key=lambda item: item.at)
        self._held = items[ready:]
        return items[:ready]

    def unfinished(self) -> dict[str, bytes]:
        """The lines that have begun and not ended, by replica: progress bars."""
        return {log.id: log.reader.unfinished for log in self._logs.values() if not log.done and log.reader.unfinished}

    def incarnations(self) -> dict[ReplicaId, IncarnationTraces]:
        """Who of the line runs now, and since when."""
        return {
            replica: IncarnationTraces(log.folder, log.started)
            for (replica, attempt, _), log in self._logs.items()
            if attempt == self.state.attempt and log.started and log.ended is None and not replica.is_helper
        }

    def _changes(self, record: Entry, at: float) -> list[Item]:
        before, event = self.state, record.event
        folded = fold_entry(before, event, record.decisions)
        self.state = after = folded.state
        resumed = after.resumes != before.resumes
        restarted = after.attempt != before.attempt and not resumed
        same = folded.before_restart
        items: list[Item] = []
        # A run begins before its replicas do, runs when the last of them does, and waits when its helpers are done.
        changed = not restarted and (after.phase, after.waits) != (before.phase, before.waits)
        own = []
        if changed and not after.phase.is_final:
            own.append(Change(at, self._folder.id, after.phase, after.attempt, message=after.waits))
        own_first = after.phase is not Phase.RUNNING and not isinstance(event, ReplicaExited)
        if own_first:
            items.extend(own)
        if restarted or resumed or not before.replicas:
            self._open_logs(after)
        if after.tensorboard and not before.tensorboard:
            self._open_log(TENSORBOARD, 0, after.resumes)
        touched = tuple(same.all_states)
        returning = (after.reviving, len(after.revivals)) != (before.reviving, len(before.revivals))
        if isinstance(event, ReplicaStarted | ReplicaWaits | ReplicaExited) and not returning:
            touched = (event.replica,)
        for replica in touched:
            old, new = before.state_of(replica), same.state_of(replica)
            if new is None or new == old:
                continue
            attempt = 0 if replica == TENSORBOARD else same.attempt
            if isinstance(event, ReplicaExited) and replica == event.replica and old and _returns(replica, same, old):
                left = ReplicaState(Phase.RESTARTING, old.incarnation, event.exit, reason_of(event.exit))
                items.extend(self._replica_change(at, replica, attempt, old, left))
                if new.incarnation == left.incarnation:
                    continue  # it has not returned yet
                old = left
            items.extend(self._replica_change(at, replica, attempt, old, new))
        if not own_first:
            items.extend(own)
        if restarted:
            for (replica, *_), log in self._logs.items():
                if log.attempt == before.attempt and log.ended is None and replica != TENSORBOARD:
                    log.ended = at
            items.append(self._restarting(at, after))
        elif after.phase != before.phase and after.phase.is_final:
            items.append(self._final(at, after))
        for each in after.revivals[len(before.revivals) :]:  # behind the life of whoever fell
            fell = before.state_of(each.cause.replica) if each.cause.replica else None
            life = fell.incarnation + 1 if fell else 0
            items.append(self._remark(at, describe_revival(each), after, life))
        said = [f"Warning: {each}" for each in after.warnings[len(before.warnings) :]] + _steps(before, after, event)
        if isinstance(event, ProjectCarried):
            said += [_synced(event)]
        if after.tensorboard_address not in ("", before.tensorboard_address):
            said += [f"TensorBoard: {after.tensorboard_address}"]
        items += [self._remark(at, each, after) for each in said]
        return items if after.attempt >= self._since else []

    def _replica_change(
        self, at: float, replica: ReplicaId, attempt: int, old: ReplicaState | None, new: ReplicaState
    ) -> Iterator[Item]:
        if old and new.incarnation > old.incarnation and not replica.is_helper:
            self._open_log(replica, attempt, new.incarnation)
        log = self._logs.get((replica, 0 if replica.is_helper else attempt, new.incarnation))
        if log and log.started is None and new.phase not in (Phase.PENDING, Phase.STARTING):
            log.started = at
        if log and log.ended is None and (new.phase.is_final or new.exit is not None):
            log.ended = at
        shown = self._wanted(replica) and self._attempt in (None, attempt) and new.phase is not Phase.PENDING
        if shown and (old is None or old.phase != new.phase or new.waits not in ("", old.waits)):
            message = new.exit.message if new.exit else new.waits
            own = (new.phase, attempt, new.reason, message, new.exit, new.incarnation)
            yield Change(at, self._spell(replica), *own)

    def _open_logs(self, state: RunState) -> None:
        """Open everybody's log of an attempt; helpers work before the first one, and again when a run is resumed."""
        for replica in self.plan.all_ids:
            if not replica.is_helper:
                self._open_log(replica, state.attempt)
            elif state.phase is Phase.BUILDING:
                self._open_log(replica, state.attempt, state.resumes)

    def _open_log(self, replica: ReplicaId, attempt: int, incarnation: int = 0) -> None:
        if self._wanted(replica) and self._attempt in (None, attempt) and attempt >= self._since:
            kept_as = 0 if replica.is_helper else attempt  # who helps knows no attempts
            folder = self._folder.path / trace_dir(replica, kept_as, incarnation)
            self._logs[replica, kept_as, incarnation] = _Log(self._spell(replica), attempt, incarnation, folder)

    def _wanted(self, replica: ReplicaId) -> bool:
        """Whether it was asked for; TensorBoard is, by its own name."""
        return replica != TENSORBOARD if self._replicas is None else replica in self._replicas

    def _remark(self, at: float, words: str, state: RunState, life: int = 0) -> Lines:
        """What drumline itself says of the run."""
        return Lines(at, self._folder.id, f"{printable(words)}\n".encode(), state.attempt, life=life, is_from_log=False)

    def _restarting(self, at: float, state: RunState) -> Change:
        cause = state.causes[-1]
        message = f"{spell_verdict(self._folder.id, cause, state.verdicts[-1])}; attempt {state.attempt} begins"
        return Change(at, self._folder.id, Phase.RESTARTING, state.attempt, cause.reason, message)

    def _final(self, at: float, state: RunState) -> Change:
        ending = state.ending
        message = ""
        if ending and ending.cause:
            message = spell_verdict(self._folder.id, ending.cause, state.verdict)
        if ending and ending.reason == PREEMPTED:
            message = f"{f'{message}; ' if message else ''}`drumline resume {self._folder.id}` goes on with it"
        reason, last = ending.reason if ending else "", max(state.incarnations.values(), default=0)
        return Change(at, self._folder.id, state.phase, state.attempt, reason, message, life=last)

    def _spell(self, replica: ReplicaId | None) -> str:
        return f"{self._folder.id}.{replica}" if replica else self._folder.id


def _returns(replica: ReplicaId, state: RunState, old: ReplicaState) -> bool:
    """Whether a replica that has ended comes back in this attempt, or has begun to."""
    new = state.replicas.get(replica)
    waits = replica in state.reviving and state.ending is None
    return new is not None and (waits or new.incarnation > old.incarnation)


def _steps(before: RunState, after: RunState, event: Event) -> list[str]:
    """Whether the run takes no steps any more, or takes some again."""
    if isinstance(event, StepsStalled) and after.stalled is event:
        return [f"Warning: stalled: {describe_stall(event)}"]
    if isinstance(event, StepsResumed) and before.stalled and not after.stalled:
        return [f"no longer stalled: a step after {format_duration(event.at_seconds - before.stalled.at_seconds)}"]
    return []


def _synced(event: ProjectCarried) -> str:
    """How much was carried, to how many, and what of it had to travel if they had some of it."""
    hosts = f" to {count(event.hosts, 'host')}" if event.hosts else ""
    sent = (
        ""
        if event.sent_bytes is None
        else f", {decimal_size(event.sent_bytes)} of it new"
        if event.sent_bytes
        else ", all known"
    )
    return f"Syncing project ({decimal_size(event.size_bytes)}, {count(event.files, 'file')}{sent}){hosts}... done"
