"""The footer of a followed run: the progress of the training, or what it waits for."""

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
_PAUSES_PER_READ = 20  # a read that takes 1 s of CPU time is followed by a pause of 20 s


class Footer:
    """The footer of one run; its text is computed again at intervals."""

    def __init__(self, feed: Feed, folder: RunFolder) -> None:
        self._feed = feed
        self._run = folder.id
        self._output = output_dir(folder, feed.plan, str(read_facts(folder).get("directory", "")))
        self._text = ""
        self._next = 0.0
        self._stage: object = None  # when this changes, the text is computed again
        self._waits = ""
        self._since = 0.0

    def text(self) -> str:
        """Return one line; empty while nothing is known."""
        stage = (self._feed.state.phase, self._feed.state.ending, self._feed.state.stalled)
        if time.monotonic() >= self._next or stage != self._stage:
            self._stage = stage
            before = time.process_time()  # CPU time, not the time spent waiting
            self._text = self._read()
            cost = time.process_time() - before
            self._next = time.monotonic() + max(_PAUSE_SECONDS, _PAUSES_PER_READ * cost)
        return self._text

    def _read(self) -> str:
        ending = self._feed.state.ending is not None
        return (self._progress() if not ending else "") or self._wait(time.monotonic())

    def _progress(self) -> str:
        if stalled := self._feed.stalled(time.time()):
            return f"run {self._run}: stalled: {describe_stall(stalled)}"
        chief = self._feed.plan.chief
        found = read_all_progress(self._feed.incarnations(), self._output, None, time.time())
        behind = [f"{self._run}.{name}" for name, replica_progress in found.items() if replica_progress.is_behind]
        return sum_up(self._run, found.get(chief, ReplicaProgress()) if chief else ReplicaProgress(), behind)

    def _wait(self, now: float) -> str:
        """Return what the run waits for, if it has waited for a second or more."""
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
    """Return the activity of a run without known progress, or the thing that it waits for; empty when it is over."""
    if state.phase.is_final:
        return ""
    if state.ending:
        left = sum(state.left.values())
        return f"ending, {count(left, 'replica')} left; `drumline kill --force {plan.run}` kills them at once"
    if state.phase is Phase.BUILDING:
        working = [f"{plan.run}.{name}" for name, each in state.helpers.items() if not each.phase.is_final]
        return f"{', '.join(working[:3])} working" if working else "building"
    if state.phase is Phase.RUNNING:
        return "running; Ctrl-C detaches from it"
    if state.phase is Phase.STARTING:
        if not plan.is_elsewhere and plan.warm and state.waiting:
            what = plan.framework if plan.framework != "plain" else "modules"
            return f"importing {what}, once for all replicas"
        return f"starting, {len(state.replicas) - state.waiting} of {len(state.replicas)} replicas run"
    return state.waits or "getting ready"
