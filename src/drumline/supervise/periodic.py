"""Run the periodic checks of a supervisor, four times a second; each is imported when it is first needed."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from drumline.engine.abilities import Dumpable
from drumline.engine.protocol import Session
from drumline.engine.tasks import Tasks
from drumline.plan.types import ReplicaId
from drumline.run.action import TakeStacks
from drumline.run.event import Event
from drumline.run.state import Phase
from drumline.store.folder import RunFolder
from drumline.supervise.control import ControlServer
from drumline.supervise.marks import Marker
from drumline.supervise.supervisor import Supervisor

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from drumline.supervise.hang import HangWatch
    from drumline.supervise.progress import ProgressWatch
    from drumline.supervise.sample import Sampler
    from drumline.supervise.stall import StallWatch

TICK_SECONDS = 0.25


class PeriodicChecks:
    """Marks logs, measures replicas, and detects steps, hangs and stalls.

    Until `settled` is set, only logs are marked, and replicas are measured only for a client that watches the run.
    With `returned`, replicas that an earlier supervisor started may be running.
    """

    def __init__(
        self,
        folder: RunFolder,
        session: Session,
        supervisor: Supervisor,
        control: ControlServer,
        loop: AbstractEventLoop,
        *,
        returned: bool,
        dates_logs: bool,
    ) -> None:
        self.settled = False
        self._folder = folder
        self._session = session
        self._supervisor = supervisor
        self._control = control
        self._loop = loop
        self._tasks = Tasks(loop)
        self._marker = Marker(returned=returned, writes=not dates_logs)
        self._sampler: Sampler | None = None
        self._progress: ProgressWatch | None = None
        self._hangs: HangWatch | None = None
        self._stalls: StallWatch | None = None
        supervisor.detect_steps = self._detect_steps
        supervisor.take_stacks = self._take_stacks
        if isinstance(session, Dumpable):
            control.dump_stacks = self._dump_stacks

    def check(self) -> None:
        """Run the checks that are due, and schedule the next ones."""
        if not self._tasks.is_open:
            return
        grown = self._marker.mark(self._session.traces())
        is_up = self.settled and not self._supervisor.state.waiting
        if is_up:
            self._open_hangs().check(self._supervisor.state, grown)
            for step in self._open_progress().find_first_step(self._supervisor.state, grown):
                self._supervisor.take(step)
            if self._supervisor.state.stepped:
                self._open_stalls().check(self._supervisor.state, grown)
        watched = self._control.is_watched
        if (watched or is_up or self._sampler) and self._open_sampler().is_due(watched=watched):
            self._tasks.begin(self._sample(watched=watched))
        self._loop.call_later(TICK_SECONDS, self.check)

    async def close(self) -> None:
        """Stop the periodic checks."""
        await self._tasks.close()

    async def finish(self) -> None:
        """Mark logs and write samples for the last time."""
        self._marker.mark(self._session.traces())
        await self._open_sampler().write()

    async def _sample(self, *, watched: bool) -> None:
        await self._open_sampler().write(watched=watched)
        self._control.notify_watchers()

    def _detect_steps(self, exited: Collection[ReplicaId]) -> Collection[Event]:
        return self._open_progress().find_first_step(self._supervisor.state, exited=frozenset(exited))

    async def _take_stacks(self, action: TakeStacks) -> None:
        from drumline.supervise.hang import take_stacks  # noqa: PLC0415 - only after a hang

        def has_ended(name: ReplicaId) -> bool:
            return self._supervisor.state.replicas[name].phase.is_final

        await take_stacks(self._folder.path, self._session, self._supervisor.take, action, has_ended)

    def _dump_stacks(self, then: Callable[[], object]) -> None:
        self._tasks.begin(self._save_stacks(then))

    async def _save_stacks(self, then: Callable[[], object]) -> None:
        state = self._supervisor.state
        running = state.current(name for name, each in state.replicas.items() if each.phase is Phase.RUNNING)
        from drumline.supervise.hang import save_stacks  # noqa: PLC0415 - only on request

        await save_stacks(self._session, running, gently=True)
        then()

    def _open_hangs(self) -> HangWatch:
        if self._hangs is None:
            from drumline.supervise.hang import HangWatch  # noqa: PLC0415 - not before replicas run

            supervisor = self._supervisor
            self._hangs = HangWatch(
                self._folder.path,
                supervisor.plan,
                self._session,
                supervisor.take,
                supervisor.addresses,
                self._loop.time,
                self._tasks.begin,
            )
        return self._hangs

    def _open_stalls(self) -> StallWatch:
        if self._stalls is None:
            from drumline.supervise.stall import StallWatch  # noqa: PLC0415 - not before the first step

            supervisor = self._supervisor
            self._stalls = StallWatch(
                self._folder.path,
                supervisor.plan,
                self._session,
                supervisor.take,
                lambda: supervisor.output_dir,
                self._loop.time,
                self._tasks.begin,
            )
        return self._stalls

    def _open_sampler(self) -> Sampler:
        if self._sampler is None:
            from drumline.supervise.sample import Sampler  # noqa: PLC0415 - not before replicas run

            path, plan = self._folder.path, self._supervisor.plan
            self._sampler = Sampler(path, plan, self._session, tick_seconds=TICK_SECONDS, clock=self._loop.time)
        return self._sampler

    def _open_progress(self) -> ProgressWatch:
        if self._progress is None:
            from drumline.supervise.progress import ProgressWatch  # noqa: PLC0415 - not before replicas run

            supervisor = self._supervisor
            self._progress = ProgressWatch(
                self._folder.path, supervisor.plan, lambda: supervisor.output_dir, self._loop.time
            )
        return self._progress
