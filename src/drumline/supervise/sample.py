"""Write samples of what each replica uses: every few seconds, and each second while a client watches."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from drumline.engine.abilities import Measurable
from drumline.engine.protocol import Session
from drumline.plan.types import Plan
from drumline.record import Record
from drumline.run.traces import METRICS, trace_dir
from drumline.run.usage import GpuUsage, Usage
from drumline.store.metrics import Sample, append_sample, read_samples

WATCHED_SECONDS = 1.0
UNWATCHED_SECONDS = 5.0

# On a machine with thousands of processes a sample takes long. The pause is so many times the time of the last sample.
_PAUSES = 10
_PAUSES_UNWATCHED = 200
_SHORTEST_SECONDS = 0.01  # a shorter sample is of an incarnation that has ended and is recorded completely


class _Written(Record):
    """The sums of the recorded samples of an incarnation."""

    seconds: float
    cpu_seconds: float


class Sampler:
    """Records the measurements of the engine; keeps how much of each incarnation is recorded."""

    def __init__(
        self, run_dir: Path, plan: Plan, session: Session, *, tick_seconds: float, clock: Callable[[], float]
    ) -> None:
        self._run_dir = run_dir
        self._session = session if isinstance(session, Measurable) else None
        self._limits = {replica.id: replica.resources.memory_bytes for replica in plan.replicas}
        self._tick = tick_seconds
        self._written: dict[str, _Written] = {}
        self._clock = clock
        self._sampled_at = clock() - WATCHED_SECONDS  # the first sample is due at once
        self._took = 0.0
        self._is_writing = False

    def is_due(self, *, watched: bool) -> bool:
        """Return whether a sample is due, and none is being written; called at every tick."""
        pause = max(WATCHED_SECONDS, _PAUSES * self._took) if watched else self._long_pause
        return not self._is_writing and self._clock() - self._sampled_at >= pause - self._tick / 2

    async def write(self, *, watched: bool = False) -> None:
        """Write a sample of every replica that runs, and the last sample of every replica that has ended since."""
        self._sampled_at, self._is_writing = self._clock(), True
        try:
            for usage in await self._session.usage(watched=watched) if self._session else ():
                with suppress(OSError):  # on a full disk this sample is lost; the next one includes its time
                    self._write(usage)
        except OSError:
            pass  # the engine cannot measure: no descriptor is left
        finally:
            self._took, self._is_writing = self._clock() - self._sampled_at, False

    @property
    def _long_pause(self) -> float:
        return max(UNWATCHED_SECONDS, _PAUSES_UNWATCHED * self._took)

    def _write(self, usage: Usage) -> None:
        folder = trace_dir(usage.replica, usage.attempt, usage.incarnation)
        path = self._run_dir / folder / METRICS
        written = self._written.get(folder) or _written(path)
        seconds = usage.at_seconds - usage.started_seconds - written.seconds
        if seconds < _SHORTEST_SECONDS and written.seconds:
            return
        seconds = max(seconds, 0.0)
        # The total can decrease: the CPU time of children that are not waited for is counted only while they run.
        cpu_seconds = max(0.0, usage.cpu_seconds - written.cpu_seconds)
        gpu = usage.gpu or GpuUsage(None, None, -1, 0)
        sample = Sample(
            at=time.time() - (self._clock() - usage.at_seconds),
            seconds=seconds,
            cpu_seconds=cpu_seconds,
            memory_bytes=usage.memory_bytes,
            memory_total_bytes=self._limits.get(usage.replica) or usage.machine_bytes,
            gpu_share=gpu.share,
            gpu_memory_bytes=gpu.memory_bytes,
            gpu_memory_total_bytes=gpu.memory_total_bytes if usage.gpu else None,
            gpu_devices=gpu.devices,
            gpu_is_whole=gpu.is_whole,
        )
        append_sample(path, sample)
        self._written[folder] = _Written(written.seconds + seconds, usage.cpu_seconds)


def _written(path: Path) -> _Written:
    """Return what an earlier supervisor recorded of an incarnation."""
    samples = read_samples(path)
    return _Written(
        math.fsum(sample.seconds for sample in samples), math.fsum(sample.cpu_seconds for sample in samples)
    )
