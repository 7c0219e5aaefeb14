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

_MOST_BYTES = 1 << 22  # bytes that are read of the stacks of one replica
_CHECKS = 20  # number of checks within a timeout
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.25, 30.0


class HangWatch:
    """Detects hangs of the current attempt; keeps since when each replica has been idle."""

    def __init__(
        self,
        run_dir: Path,
        plan: Plan,
        session: Session,
        report: ReportEvent,
        addresses: Callable[[int], Mapping[ReplicaId, str]],
        clock: Callable[[], float],
        start_task: Callable[[Work], object],
    ) -> None:
        self._run_dir = run_dir
        self._plan = plan
        self._session = session
        self._report = report
        self._addresses = addresses
        self._clock = clock
        self._start_task = start_task
        self._is_checking = False
        self._attempt: int | None = None
        self._reset(None)

    def _reset(self, attempt: int | None) -> None:
        self._attempt = attempt
        self._idle_times: IdleTimes | None = None
        self._began = self._next_check = self._clock()
        self._output_at: dict[str, float] = {}  # when the log of each replica last grew
        self._formed = not needs_rendezvous(self._plan)
        self._waits = 0  # consecutive checks in which all replicas waited
        self._is_reading_stacks = False
        self._warned = ""

    def check(self, state: RunState, grown: Iterable[Path]) -> None:
        """Start a check if one is due; called at every tick with the folders of logs that have grown."""
        now = self._clock()
        if state.attempt != self._attempt or state.phase is not Phase.RUNNING or state.ending:
            self._reset(state.attempt)
            if state.phase is not Phase.RUNNING or state.ending:
                self._attempt = None
                return
        for folder in grown:
            if not folder.name.startswith("evaluator."):
                self._output_at[folder.name.partition("+")[0]] = now
        self._formed = self._formed or state.stepped
        if now >= self._next_check and not self._is_checking:
            self._next_check = now + self._pause
            self._is_checking = True
            self._start_task(self._check(state))

    @property
    def _pause(self) -> float:
        times = [self._plan.timeouts.progress_seconds, None if self._formed else self._plan.timeouts.rendezvous_seconds]
        shortest = min((seconds for seconds in times if seconds is not None), default=_CHECKS * _LONGEST_PAUSE)
        return min(max(_SHORTEST_PAUSE, shortest / _CHECKS), _LONGEST_PAUSE)

    async def _check(self, state: RunState) -> None:
        try:
            if self._plan.timeouts.progress_seconds is not None or not self._formed:
                await self._check_all(state)
        finally:
            self._is_checking = False

    async def _check_all(self, state: RunState) -> None:
        progress, found = self._plan.timeouts.progress_seconds, await work_samples_of(self._session)
        if state.attempt != self._attempt:
            return  # the attempt has ended meanwhile
        now, found = self._clock(), [work for work in found if work.attempt == state.attempt]
        samples = {work.replica: work for work in found if work.replica.role != "evaluator"}
        said = max(self._output_at.values(), default=None), *self._report_times(samples.values())
        sample = GangSample(now, samples, said)
        self._idle_times = update_idle_times(self._idle_times, sample) if self._idle_times else start_idle_times(sample)
        if not self._formed and now - self._began >= self._plan.timeouts.rendezvous_seconds:
            await self._find_missing(state.attempt, now, self._idle_times)
        if progress is not None and samples:
            self._judge(state.attempt, now, self._idle_times, progress)

    def _judge(self, attempt: int, now: float, idle_times: IdleTimes, progress: float) -> None:
        verdict = classify_activity(idle_times, now, progress)
        if verdict is GangActivity.HUNG:
            self._report(GangHung(attempt, f"no progress for {format_duration(now - idle_times.idle_since)}"))
        elif verdict is GangActivity.BUSY and not self._is_reading_stacks:
            self._is_reading_stacks = True
            incarnations = [
                Incarnation(name, attempt, work.incarnation) for name, (_, work) in idle_times.since.items()
            ]
            self._start_task(self._count_waits(attempt, incarnations, idle_times))
        elif verdict is GangActivity.MOVES:
            self._waits = 0

    async def _count_waits(self, attempt: int, incarnations: Sequence[Incarnation], idle_times: IdleTimes) -> None:
        """Read the stacks, and report a hang if all replicas waited in many consecutive checks.

        A replica that computes between its waits does not wait in every check.
        """
        try:
            await save_stacks(self._session, incarnations, gently=True)
        finally:
            self._is_reading_stacks = False
        if attempt != self._attempt:
            return
        self._waits = (
            self._waits + 1 if all_wait(read_activities(self._run_dir, incarnations, _stopped(idle_times))) else 0
        )
        if self._waits >= _CHECKS:
            silent = format_duration(self._clock() - idle_times.silent_since)
            self._report(GangHung(attempt, f"no progress for {silent}, though processors are busy"))

    async def _find_missing(self, attempt: int, now: float, idle_times: IdleTimes) -> None:
        found = await self._session.sockets() if isinstance(self._session, Connected) else ()
        if attempt != self._attempt:
            return
        sockets = {each.replica: each for each in found}
        missing = find_missing(self._plan, self._addresses(attempt), sockets)
        self._formed = not missing
        patience = self._plan.timeouts.rendezvous_seconds
        ages = [now - self._idle_since(each.replica, idle_times) for each in missing]
        idle = [each for each, age in zip(missing, ages, strict=True) if age >= patience]
        if idle:
            message = f"after {format_duration(now - self._began)} {describe_missing(idle)}"
            self._report(RendezvousFailed(attempt, idle[0].replica, message))
        elif ages and min(ages) < patience / 2 and (message := describe_missing(missing)) != self._warned:
            self._warned = message
            self._report(
                EngineWarned(
                    attempt, f"the rendezvous has not formed yet: {message}; replicas that are busy have more time"
                )
            )

    def _idle_since(self, name: ReplicaId, idle_times: IdleTimes) -> float:
        at = idle_times.since[name][0] if name in idle_times.since else self._clock()
        return max(at, self._output_at.get(str(name), 0.0))

    def _report_times(self, samples: Iterable[WorkSample]) -> list[int]:
        changed = []
        for work in samples:
            path = self._run_dir / Incarnation.of(work).folder / REPORT
            with suppress(OSError):
                changed.append(os.stat(path).st_mtime_ns)  # noqa: PTH116
        return changed


async def take_stacks(
    run_dir: Path,
    session: Session,
    report: ReportEvent,
    action: TakeStacks,
    has_ended: Callable[[ReplicaId], bool] = lambda _: False,
) -> None:
    """Save the stacks of replicas, even if that disturbs them, and report StacksTaken with the blocking replica."""
    samples = await work_samples_of(session)
    stopped = {work.replica for work in samples if work.is_stopped and work.attempt == action.attempt}
    await save_stacks(session, action.incarnations, gently=False)
    found = read_activities(run_dir, action.incarnations, stopped)
    # A replica without stacks that has ended meanwhile is not the cause.
    seen = {name: each for name, each in found.items() if each.kind is not ActivityKind.UNKNOWN or not has_ended(name)}
    diagnosis = find_blocking_replica(seen)
    report(StacksTaken(action.attempt, diagnosis.replica, diagnosis.message))


async def work_samples_of(session: Session) -> Sequence[WorkSample]:
    """Return what replicas have done so far; nothing if the engine does not support that."""
    return await session.work_samples() if isinstance(session, Observable) else ()


async def save_stacks(session: Session, incarnations: Sequence[Incarnation], *, gently: bool) -> None:
    """Save stacks, if the engine supports that; `gently` without disturbing the replicas."""
    if isinstance(session, Dumpable):
        await session.stacks(incarnations, gently=gently)


def read_activities(
    run_dir: Path, incarnations: Iterable[Incarnation], stopped: Collection[ReplicaId]
) -> dict[ReplicaId, Activity]:
    """Return what each replica does, according to its saved stacks."""
    found = {}
    for each in incarnations:
        path = run_dir / each.folder / STACKS
        text = ""
        with suppress(OSError), open(path, "rb", opener=open_regular) as stacks:
            text = stacks.read(_MOST_BYTES).decode(errors="replace")
        found[each.replica] = read_activity(text, is_stopped=each.replica in stopped)
    return found


def _stopped(idle_times: IdleTimes) -> set[ReplicaId]:
    return {name for name, (_, work) in idle_times.since.items() if work.is_stopped}
