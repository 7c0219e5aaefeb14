"""The last line of a terminal that follows a run: how far the training is, or what it waits for; read now and then."""

from __future__ import annotations

import time

from drumline.cli.progress import sum_up
from drumline.plan.types import Plan
from drumline.run.stall import describe_stall
from drumline.run.state import Phase, RunState
from drumline.store.folder import RunFolder
from drumline.store.launch import read_facts
from drumline.view.feed import Feed
from drumline.view.progress import read_all_progress
from drumline.view.replica_progress import ReplicaProgress
from drumline.view.scalars import output_dir
from drumline.words import count, format_duration

_PAUSE_SECONDS = 1.0
_PAUSES_PER_LOOK = 20  # a line of many is looked at less often, so that it never costs more than a twentieth of a core


class Footer:
    """What to say of a run now; looks again when it is time. Before it is known how far it is, what it waits for."""

    def __init__(self, feed: Feed, folder: RunFolder) -> None:
        self._feed = feed
        self._run = folder.id
        self._output = output_dir(folder, feed.plan, str(read_facts(folder).get("directory", "")))
        self._text = ""
        self._next = 0.0
        self._stage: object = None  # what was waited for then is over when this changes
        self._waits = ""
        self._since = 0.0

    def text(self) -> str:
        """One line; empty while nothing is known."""
        stage = (self._feed.state.phase, self._feed.state.ending, self._feed.state.stalled)
        if time.monotonic() >= self._next or stage != self._stage:
            self._stage = stage
            before = time.process_time()  # what it costs, and not what others make it wait
            self._text = self._look()
            cost = time.process_time() - before
            self._next = time.monotonic() + max(_PAUSE_SECONDS, _PAUSES_PER_LOOK * cost)
        return self._text

    def _look(self) -> str:
        ending = self._feed.state.ending is not None
        return (self._far() if not ending else "") or self._wait(time.monotonic())

    def _far(self) -> str:
        if stalled := self._feed.stalled(time.time()):
            return f"run {self._run}: stalled: {describe_stall(stalled)}"
        chief = self._feed.plan.chief
        found = read_all_progress(self._feed.incarnations(), self._output, None, time.time())
        behind = [f"{self._run}.{name}" for name, replica_progress in found.items() if replica_progress.is_behind]
        return sum_up(self._run, found.get(chief, ReplicaProgress()) if chief else ReplicaProgress(), behind)

    def _wait(self, now: float) -> str:
        """What is waited for, if it has been for more than a moment."""
        waits = describe_wait(self._feed.plan, self._feed.state)
        if waits != self._waits:
            self._waits, self._since = waits, now
        lasted = now - self._since
        return (
            f"run {self._run}: {waits} ({format_duration(lasted, parts=1)})"
            if waits and lasted >= _PAUSE_SECONDS
            else ""
        )


def describe_wait(plan: Plan, state: RunState) -> str:
    """What a run does that has nothing to show for it yet; nothing, when it is over."""
    if state.phase.is_final:
        return ""
    if state.ending:
        left = sum(state.left.values())
        return f"ending, {count(left, 'replica')} left; `drumline kill --force {plan.run}` does not wait for them"
    if state.phase is Phase.BUILDING:
        working = [f"{plan.run}.{name}" for name, each in state.helpers.items() if not each.phase.is_final]
        return f"{', '.join(working[:3])} at work" if working else "building"
    if state.phase is Phase.RUNNING:
        return "running; Ctrl-C leaves it alone"
    if state.phase is Phase.STARTING:
        if not plan.is_elsewhere and plan.warm and state.waiting:
            what = plan.framework if plan.framework != "plain" else "what is to be warm"
            return f"importing {what}, once for all replicas"
        return f"starting, {len(state.replicas) - state.waiting} of {len(state.replicas)} run"
    return state.waits or "getting ready"
