"""Detect hangs: check periodically that the replicas of an attempt make progress, and that their rendezvous formed."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from drumline.engine.abilities import Connected, Dumpable, Observable
from drumline.engine.protocol import ReportEvent, Session
from drumline.engine.tasks import Work
from drumline.plan.types import Plan, ReplicaId
from drumline.run.action import TakeStacks
from drumline.run.blocking import Activity, ActivityKind, all_wait, find_blocking_replica, read_activity
from drumline.run.event import EngineWarned, GangHung, RendezvousFailed, StacksTaken
from drumline.run.idle import (
    GangActivity,
    GangSample,
    IdleTimes,
    WorkSample,
    classify_activity,
    start_idle_times,
    update_idle_times,
)
from drumline.run.incarnation import Incarnation
from drumline.run.rendezvous import describe_missing, find_missing, needs_rendezvous
from drumline.run.state import Phase, RunState
from drumline.run.traces import REPORT, STACKS
from drumline.runtime.private import open_regular
from drumline.words import format_duration

_MOST_BYTES = 1 << 22  # of a replica's stacks
_LOOKS = 20  # checks within a timeout
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.25, 30.0


class HangWatch:
    """Checks the attempt of a state; remembers since when all replicas have been idle."""

    def __init__(
        self,
        run_dir: Path,
        plan: Plan,
        session: Session,
        tell: ReportEvent,
        addresses: Callable[[int], Mapping[ReplicaId, str]],
        clock: Callable[[], float],
        begin: Callable[[Work], object],
    ) -> None:
        self._run_dir = run_dir
        self._plan = plan
        self._session = session
        self._tell = tell
        self._addresses = addresses
        self._clock = clock
        self._begin = begin  # starts a task
        self._is_looking = False
        self._attempt: int | None = None
        self._reset(None)

    def _reset(self, attempt: int | None) -> None:
        self._attempt = attempt
        self._quiet: IdleTimes | None = None
        self._began = self._next_look = self._clock()
        self._spoke: dict[str, float] = {}  # when the log in each folder last grew
        self._formed = not needs_rendezvous(self._plan)
        self._waits = 0  # consecutive checks in which all replicas waited
        self._looks_closely = False
        self._warned = ""

    def look(self, state: RunState, grown: Iterable[Path]) -> None:
        """Check if it is due; called at every tick with the folders of logs that have grown."""
        now = self._clock()
        if state.attempt != self._attempt or state.phase is not Phase.RUNNING or state.ending:
            self._reset(state.attempt)
            if state.phase is not Phase.RUNNING or state.ending:
                self._attempt = None
                return
        for folder in grown:
            if not folder.name.startswith("evaluator."):
                self._spoke[folder.name.partition("+")[0]] = now
        self._formed = self._formed or state.stepped
        if now >= self._next_look and not self._is_looking:
            self._next_look = now + self._pause
            self._is_looking = True
            self._begin(self._look(state))

    @property
    def _pause(self) -> float:
        times = [self._plan.timeouts.progress_seconds, None if self._formed else self._plan.timeouts.rendezvous_seconds]
        shortest = min((seconds for seconds in times if seconds is not None), default=_LOOKS * _LONGEST_PAUSE)
        return min(max(_SHORTEST_PAUSE, shortest / _LOOKS), _LONGEST_PAUSE)

    async def _look(self, state: RunState) -> None:
        try:
            if self._plan.timeouts.progress_seconds is not None or not self._formed:
                await self._look_at_all(state)
        finally:
            self._is_looking = False

    async def _look_at_all(self, state: RunState) -> None:
        progress, found = self._plan.timeouts.progress_seconds, await work_samples_of(self._session)
        if state.attempt != self._attempt:
            return  # the attempt has ended meanwhile
        now, found = self._clock(), [work for work in found if work.attempt == state.attempt]
        samples = {work.replica: work for work in found if work.replica.role != "evaluator"}
        said = max(self._spoke.values(), default=None), *self._reports(samples.values())
        look = GangSample(now, samples, said)
        self._quiet = update_idle_times(self._quiet, look) if self._quiet else start_idle_times(look)
        if not self._formed and now - self._began >= self._plan.timeouts.rendezvous_seconds:
            await self._look_for_missing(state.attempt, now, self._quiet)
        if progress is not None and samples:
            self._judge(state.attempt, now, self._quiet, progress)

    def _judge(self, attempt: int, now: float, quiet: IdleTimes, progress: float) -> None:
        verdict = classify_activity(quiet, now, progress)
        if verdict is GangActivity.HUNG:
            self._tell(GangHung(attempt, f"no progress for {format_duration(now - quiet.idle_since)}"))
        elif verdict is GangActivity.BUSY and not self._looks_closely:
            self._looks_closely = True
            incarnations = [Incarnation(name, attempt, work.incarnation) for name, (_, work) in quiet.since.items()]
            self._begin(self._look_closely(attempt, incarnations, quiet))
        elif verdict is GangActivity.MOVES:
            self._waits = 0

    async def _look_closely(self, attempt: int, incarnations: Sequence[Incarnation], quiet: IdleTimes) -> None:
        """Count the checks in which all replicas wait; one that computes does not wait in one of them."""
        try:
            await save_stacks(self._session, incarnations, gently=True)
        finally:
            self._looks_closely = False
        if attempt != self._attempt:
            return
        self._waits = self._waits + 1 if all_wait(read_activities(self._run_dir, incarnations, _stopped(quiet))) else 0
        if self._waits >= _LOOKS:
            silent = format_duration(self._clock() - quiet.silent_since)
            self._tell(GangHung(attempt, f"no progress for {silent}, though processors are busy"))

    async def _look_for_missing(self, attempt: int, now: float, quiet: IdleTimes) -> None:
        found = await self._session.sockets() if isinstance(self._session, Connected) else ()
        if attempt != self._attempt:
            return
        sockets = {each.replica: each for each in found}
        missing = find_missing(self._plan, self._addresses(attempt), sockets)
        self._formed = not missing
        patience = self._plan.timeouts.rendezvous_seconds
        ages = [now - self._idle_since(each.replica, quiet) for each in missing]
        idle = [each for each, age in zip(missing, ages, strict=True) if age >= patience]
        if idle:
            message = f"after {format_duration(now - self._began)} {describe_missing(idle)}"
            self._tell(RendezvousFailed(attempt, idle[0].replica, message))
        elif ages and min(ages) < patience / 2 and (message := describe_missing(missing)) != self._warned:
            self._warned = message
            self._tell(
                EngineWarned(
                    attempt, f"the rendezvous has not formed yet: {message}; replicas that are busy have more time"
                )
            )

    def _idle_since(self, name: ReplicaId, quiet: IdleTimes) -> float:
        at = quiet.since[name][0] if name in quiet.since else self._clock()
        return max(at, self._spoke.get(str(name), 0.0))

    def _reports(self, samples: Iterable[WorkSample]) -> list[int]:
        changed = []
        for work in samples:
            path = self._run_dir / Incarnation.of(work).folder / REPORT
            with suppress(OSError):
                changed.append(os.stat(path).st_mtime_ns)  # noqa: PTH116
        return changed


async def take_stacks(
    run_dir: Path,
    session: Session,
    tell: ReportEvent,
    action: TakeStacks,
    has_ended: Callable[[ReplicaId], bool] = lambda _: False,
) -> None:
    """Save the stacks of all replicas, even if that disturbs them, and report the replica that blocks the others."""
    samples = await work_samples_of(session)
    stopped = {work.replica for work in samples if work.is_stopped and work.attempt == action.attempt}
    await save_stacks(session, action.incarnations, gently=False)
    found = read_activities(run_dir, action.incarnations, stopped)
    # A replica that ended before its stacks were taken has none either, and is not the cause.
    seen = {name: each for name, each in found.items() if each.kind is not ActivityKind.UNKNOWN or not has_ended(name)}
    diagnosis = find_blocking_replica(seen)
    tell(StacksTaken(action.attempt, diagnosis.replica, diagnosis.message))


async def work_samples_of(session: Session) -> Sequence[WorkSample]:
    """Return what replicas have done so far, where the engine supports that."""
    return await session.work_samples() if isinstance(session, Observable) else ()


async def save_stacks(session: Session, incarnations: Sequence[Incarnation], *, gently: bool) -> None:
    """Save stacks, where the engine supports that."""
    if isinstance(session, Dumpable):
        await session.stacks(incarnations, gently=gently)


def read_activities(
    run_dir: Path, incarnations: Iterable[Incarnation], stopped: Collection[ReplicaId]
) -> dict[ReplicaId, Activity]:
    """Return what each replica does, as its saved stacks show."""
    found = {}
    for each in incarnations:
        path = run_dir / each.folder / STACKS
        text = ""
        with suppress(OSError), open(path, "rb", opener=open_regular) as stacks:
            text = stacks.read(_MOST_BYTES).decode(errors="replace")
        found[each.replica] = read_activity(text, is_stopped=each.replica in stopped)
    return found


def _stopped(quiet: IdleTimes) -> set[ReplicaId]:
    return {name for name, (_, work) in quiet.since.items() if work.is_stopped}
