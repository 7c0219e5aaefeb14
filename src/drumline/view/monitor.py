"""The resources that the replicas of a run use now: a row for each replica, and one for their sum."""

from __future__ import annotations

from collections.abc import Sequence

from drumline.record import Record
from drumline.run.id import Target
from drumline.run.state import Phase
from drumline.run.traces import METRICS, trace_dir
from drumline.runtime.lock import is_locked
from drumline.store.clock import Moment
from drumline.store.folder import RunFolder
from drumline.store.metrics import Sample, last_sample
from drumline.store.reachability import read_reachability
from drumline.store.summary import read_history, summarise_history
from drumline.view.runs import RunRow, make_row


class UsageRow(Record):
    """A replica or a whole run, and its last sample."""

    id: str
    phase: str
    used: Sample | None  # None if it does not run or was not sampled


class MonitoredRun(Record):
    """A run, its replicas in the order of the plan, and their sum if there are several."""

    run: RunRow
    replicas: tuple[UsageRow, ...]
    total: UsageRow | None

    @property
    def rows(self) -> tuple[UsageRow, ...]:
        """Return all rows, running replicas first."""
        running = sorted(self.replicas, key=lambda row: row.phase != Phase.RUNNING)
        return (*running, self.total) if self.total else tuple(running)


def monitor_run(folder: RunFolder, target: Target, now: Moment) -> MonitoredRun:
    """Read the last samples of these replicas; raise DrumlineError if the run cannot be read."""
    supervised = is_locked(folder.lock_file)  # first: see `view.runs`
    history = read_history(folder)
    state = history.state
    limits = {replica.id: replica.resources.memory_bytes for replica in history.plan.replicas}
    rows, samples = [], []
    for replica in target.replicas(history.plan):
        own = state.state_of(replica)
        phase = own.phase if own else state.phase
        if replica.is_helper and phase is not Phase.RUNNING and target.role is None:
            continue  # a helper that does not run is left out
        attempt = 0 if replica.is_helper else state.attempt
        path = folder.path / trace_dir(replica, attempt, own.incarnation if own else 0) / METRICS
        used = last_sample(path) if phase is Phase.RUNNING else None
        rows.append(UsageRow(f"{folder.id}.{replica}", phase.value, used))
        samples += [(used, limits.get(replica))] if used else []
    run = make_row(summarise_history(folder, history), now, supervised=supervised, reach=read_reachability(folder.path))
    total = UsageRow(folder.id, state.phase.value, add_up(samples))
    return MonitoredRun(run, tuple(rows), total if target.role is None and len(rows) > 1 else None)


def add_up(used: Sequence[tuple[Sample, int | None]]) -> Sample | None:
    """Return the sum of samples, each given with its memory limit; GPUs that replicas share count once.

    If a sample has no limit, the limit of the sum is the memory of the machine. Return None without samples.
    """
    if not used:
        return None
    samples = [sample for sample, _ in used]
    seconds = max(sample.seconds for sample in samples)
    memory = [sample.memory_bytes for sample in samples if sample.memory_bytes is not None]
    limits = [limit for _, limit in used if limit is not None]
    machine = max((sample.memory_total_bytes or 0 for sample, limit in used if limit is None), default=0)
    gpus = [sample for sample in samples if sample.gpu_memory_total_bytes and sample.gpu_devices]
    together = Sample(
        at=max(sample.at for sample in samples),
        seconds=seconds,
        cpu_seconds=seconds * sum(sample.cpu_share for sample in samples),
        memory_bytes=sum(memory) if memory else None,
        memory_total_bytes=sum(limits) if len(limits) == len(used) else machine or None,
    )
    return _add_gpus(together, gpus) if gpus else together


def _add_gpus(together: Sample, gpus: Sequence[Sample]) -> Sample:
    devices = 0
    for sample in gpus:
        devices |= sample.gpu_devices
    count = devices.bit_count()
    sizes = [(sample.gpu_memory_total_bytes or 0) / sample.gpu_devices.bit_count() for sample in gpus]
    shares = [sample.gpu_share * sample.gpu_devices.bit_count() for sample in gpus if sample.gpu_share is not None]
    memory = [sample.gpu_memory_bytes for sample in gpus if sample.gpu_memory_bytes is not None]
    return together.replace(
        gpu_share=min(1.0, sum(shares) / count) if len(shares) == len(gpus) else None,
        gpu_memory_bytes=sum(memory) if len(memory) == len(gpus) else None,
        gpu_memory_total_bytes=round(count * sum(sizes) / len(sizes)),
        gpu_devices=devices,
        gpu_is_whole=any(sample.gpu_is_whole for sample in gpus),
    )
