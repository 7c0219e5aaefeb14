"""Follow a run: return its changes of state and the lines of its logs, merged in the order of their times."""

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
    """Complete lines of one replica's log with the same time; or a notice of drumline about the run."""

    at: float
    id: str
    data: bytes
    attempt: int = 0
    exact: bool = True
    incarnation: int = 0  # in this attempt
    is_from_log: bool = True


class Change(Record):
    """A change of the phase of a run or a replica."""

    at: float
    id: str
    phase: Phase
    attempt: int = 0
    reason: str = ""
    message: str = ""
    exit: Exit | None = None
    incarnation: int = 0  # in this attempt


Item = Lines | Change

# Bytes that are read in one poll, of all logs together and of each log.
_BYTES_OF_ALL = 1 << 22
_BYTES_OF_EACH = 1 << 16


class _Log:
    """The log of one incarnation, and the lines that were read but not returned yet."""

    def __init__(self, name: str, attempt: int, incarnation: int, folder: Path) -> None:
        self.id = name
        self.attempt = attempt
        self.incarnation = incarnation
        self.folder = folder
        self.reader = LogReader(folder)
        self.started: float | None = None
        self.ended: float | None = None
        self.waiting: list[Lines] = []
        self.done = False
        self._last = 0.0

    def read(self, now: float, *, over: bool, size: int) -> None:
        """Read up to `size` more bytes, unless lines are still pending."""
        if self.done or self.started is None or self.waiting:
            return
        ended = over or self.ended is not None
        for block in self.reader.read(until=now, ended=ended, size=size):
            # Marks are written a moment after the output. So the time of a line is limited to the time between the
            # start and the end of its replica, and is never before that of the previous line.
            self._last = max(self._last, self.started, block.at)
            at = self._last if self.ended is None else min(self._last, self.ended)
            self.waiting.append(Lines(at, self.id, block.data, self.attempt, block.exact, self.incarnation))
        self.done = ended and not self.waiting and not self.reader.has_more

    def take(self, horizon: float) -> list[Lines]:
        """Return the pending lines up to this time."""
        ready = bisect_right(self.waiting, horizon, key=lambda item: item.at)
        taken, self.waiting = self.waiting[:ready], self.waiting[ready:]
        return taken


def _order(item: Item) -> tuple[float, int, int, int]:
    """Return a key that sorts items by time, and items with the same time by: start, lines, end, restart of a replica.

    Entries of the journal keep their order, even if a host with a wrong clock reports an earlier time.
    """
    rank = int(item.is_from_log) if isinstance(item, Lines) else 2 if item.phase.is_final or item.exit else 0
    return item.at, item.attempt, item.incarnation, rank


class Feed:
    """Follows one run through the store, from its beginning or from the attempt `since`; `poll` returns new items.

    With `replicas` or `attempt`, only these replicas or this attempt are included.
    """

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
        self._moment = 0.0  # of the last entry; never decreases, even if the clock does
        self._stalled_at = 0.0  # when a stalled run took its last step
        self._held: list[Item] = []
        self._logs: dict[tuple[ReplicaId, int, int], _Log] = {}  # by replica, attempt and incarnation

    @property
    def is_over(self) -> bool:
        """Return whether the run has ended."""
        return self.state.phase.is_final

    @property
    def final_cause(self) -> Cause | None:
        """Return the cause of a run that has failed or fails for good, when it is known."""
        return self.state.known_cause

    def stalled(self, now: float) -> StepsStalled | None:
        """Return the stall of a run that takes no steps, with `seconds` up to now; None for any other run."""
        stalled = self.state.stalled
        if stalled is None or self.state.ending:
            return None
        return stalled.replace(seconds=max(stalled.seconds, now - self._stalled_at))

    def poll(self, now: float) -> list[Item]:
        """Return the new items since the last call, in order; call again until nothing is returned."""
        items = self._held
        for record in self._journal.read():
            self._moment = max(self._moment, record.at)
            if isinstance(record.event, StepsStalled):
                self._stalled_at = self._moment - record.event.seconds
            items.extend(self._changes(record, self._moment))
        logs = [log for log in self._logs.values() if not log.done]
        size = max(_BYTES_OF_EACH, _BYTES_OF_ALL // max(1, len(logs)))
        horizon = math.inf  # a log with more to read may have later lines
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
        """Return the incomplete last lines of logs, such as progress bars, by replica."""
        return {log.id: log.reader.unfinished for log in self._logs.values() if not log.done and log.reader.unfinished}

    def incarnations(self) -> dict[ReplicaId, IncarnationTraces]:
        """Return the running incarnations."""
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
        before_restart = folded.before_restart
        items: list[Item] = []
        # The change of the run comes before those of its replicas, unless they cause it: it is RUNNING when all of them
        # are, and PENDING when its helpers have ended.
        changed = not restarted and (after.phase, after.waits) != (before.phase, before.waits)
        run_changes = []
        if changed and not after.phase.is_final:
            run_changes.append(Change(at, self._folder.id, after.phase, after.attempt, message=after.waits))
        run_first = after.phase is not Phase.RUNNING and not isinstance(event, ReplicaExited)
        if run_first:
            items.extend(run_changes)
        if restarted or resumed or not before.replicas:
            self._open_logs(after)
        if after.tensorboard and not before.tensorboard:
            self._open_log(TENSORBOARD, 0, after.resumes)
        touched = tuple(before_restart.all_states)
        returning = (after.reviving, len(after.revivals)) != (before.reviving, len(before.revivals))
        if isinstance(event, ReplicaStarted | ReplicaWaits | ReplicaExited) and not returning:
            touched = (event.replica,)
        for replica in touched:
            old, new = before.state_of(replica), before_restart.state_of(replica)
            if new is None or new == old:
                continue
            attempt = 0 if replica == TENSORBOARD else before_restart.attempt
            if (
                isinstance(event, ReplicaExited)
                and replica == event.replica
                and old
                and _returns(replica, before_restart, old)
            ):
                left = ReplicaState(Phase.RESTARTING, old.incarnation, event.exit, reason_of(event.exit))
                items.extend(self._replica_change(at, replica, attempt, old, left))
                if new.incarnation == left.incarnation:
                    continue  # the replica has not restarted yet
                old = left
            items.extend(self._replica_change(at, replica, attempt, old, new))
        if not run_first:
            items.extend(run_changes)
        if restarted:
            for (replica, *_), log in self._logs.items():
                if log.attempt == before.attempt and log.ended is None and replica != TENSORBOARD:
                    log.ended = at
            items.append(self._restarting(at, after))
        elif after.phase != before.phase and after.phase.is_final:
            items.append(self._final(at, after))
        for each in after.revivals[len(before.revivals) :]:  # the notice follows the failed incarnation
            failed = before.state_of(each.cause.replica) if each.cause.replica else None
            incarnation = failed.incarnation + 1 if failed else 0
            items.append(self._notice(at, describe_revival(each), after, incarnation))
        said = [f"Warning: {each}" for each in after.warnings[len(before.warnings) :]] + _steps(before, after, event)
        if isinstance(event, ProjectCarried):
            said += [_synced(event)]
        if after.tensorboard_address not in ("", before.tensorboard_address):
            said += [f"TensorBoard: {after.tensorboard_address}"]
        items += [self._notice(at, each, after) for each in said]
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
        """Open all logs of an attempt; those of helpers only before the first attempt, or when a run is resumed."""
        for replica in self.plan.all_ids:
            if not replica.is_helper:
                self._open_log(replica, state.attempt)
            elif state.phase is Phase.BUILDING:
                self._open_log(replica, state.attempt, state.resumes)

    def _open_log(self, replica: ReplicaId, attempt: int, incarnation: int = 0) -> None:
        if self._wanted(replica) and self._attempt in (None, attempt) and attempt >= self._since:
            kept_as = 0 if replica.is_helper else attempt  # helpers belong to no attempt
            folder = self._folder.path / trace_dir(replica, kept_as, incarnation)
            self._logs[replica, kept_as, incarnation] = _Log(self._spell(replica), attempt, incarnation, folder)

    def _wanted(self, replica: ReplicaId) -> bool:
        """Return whether the log of a replica was requested; by default all are, except that of TensorBoard."""
        return replica != TENSORBOARD if self._replicas is None else replica in self._replicas

    def _notice(self, at: float, words: str, state: RunState, incarnation: int = 0) -> Lines:
        """Return a notice of drumline about the run."""
        return Lines(
            at,
            self._folder.id,
            f"{printable(words)}\n".encode(),
            state.attempt,
            incarnation=incarnation,
            is_from_log=False,
        )

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
        return Change(at, self._folder.id, state.phase, state.attempt, reason, message, incarnation=last)

    def _spell(self, replica: ReplicaId | None) -> str:
        return f"{self._folder.id}.{replica}" if replica else self._folder.id


def _returns(replica: ReplicaId, state: RunState, old: ReplicaState) -> bool:
    """Return whether a replica that has ended restarts in this attempt."""
    new = state.replicas.get(replica)
    waits = replica in state.reviving and state.ending is None
    return new is not None and (waits or new.incarnation > old.incarnation)


def _steps(before: RunState, after: RunState, event: Event) -> list[str]:
    """Return the notice that the run is stalled, or that it takes steps again; none for any other event."""
    if isinstance(event, StepsStalled) and after.stalled is event:
        return [f"Warning: stalled: {describe_stall(event)}"]
    if isinstance(event, StepsResumed) and before.stalled and not after.stalled:
        return [f"no longer stalled: a step after {format_duration(event.at_seconds - before.stalled.at_seconds)}"]
    return []


def _synced(event: ProjectCarried) -> str:
    """Return the notice of a copied project: its size, how much of it was sent, and to how many hosts."""
    hosts = f" to {count(event.hosts, 'host')}" if event.hosts else ""
    sent = (
        ""
        if event.sent_bytes is None
        else f", {decimal_size(event.sent_bytes)} of it new"
        if event.sent_bytes
        else ", all known"
    )
    return f"Syncing project ({decimal_size(event.size_bytes)}, {count(event.files, 'file')}{sent}){hosts}... done"
