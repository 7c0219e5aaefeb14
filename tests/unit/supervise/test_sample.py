"""When samples are taken and written, and that no time of an incarnation is lost or counted twice."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

from drumline.engine.local.exits import ended_usage
from drumline.engine.local.proc import proportional_bytes
from drumline.engine.local.trace import Trace
from drumline.engine.local.usage import UsageSampler
from drumline.engine.protocol import Session
from drumline.plan.types import ReplicaId
from drumline.run.incarnation import Incarnation
from drumline.run.traces import METRICS, trace_dir
from drumline.run.usage import GpuUsage, Usage
from drumline.store.metrics import Sample, read_samples
from drumline.supervise.sample import UNWATCHED_SECONDS, WATCHED_SECONDS, Sampler
from scaffold.loops import SteppedLoop
from scaffold.plans import plan_of

WORKER = ReplicaId("worker", 0)
MEMORY = 3 << 30


class Measured:
    """An engine with one replica, which started at 100 and uses half a core; a measurement takes `takes_seconds`."""

    def __init__(self) -> None:
        self.now = 100.0
        self.cpu_seconds: float | None = None
        self.takes_seconds = 0.0
        self.gpu: GpuUsage | None = None

    async def usage(self, *, watched: bool) -> list[Usage]:
        at = self.now
        self.now += self.takes_seconds
        cpu_seconds = (at - 100.0) / 2 if self.cpu_seconds is None else self.cpu_seconds
        return [Usage(WORKER, 0, 0, at, 100.0, cpu_seconds, MEMORY, 8 << 30, self.gpu)]


class SampledRun:
    """A sampler, its engine, and the samples that it has written."""

    def __init__(self, folder: Path, spec: str = "framework: plain") -> None:
        self.engine = Measured()
        self.folder = folder
        self.file = folder / trace_dir(WORKER, 0) / METRICS
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.spec = spec
        self.restart_supervisor()

    def restart_supervisor(self) -> None:
        """Replace the sampler, as the next supervisor does."""
        plan, engine = plan_of(self.spec), cast("Session", self.engine)
        self.sampler = Sampler(self.folder, plan, engine, tick_seconds=0.25, clock=lambda: self.engine.now)

    def pass_seconds(self, seconds: float, *, watched: bool) -> int:
        """Tick for these seconds; return the number of samples that were taken."""
        taken = 0
        until = self.engine.now + seconds
        while self.engine.now < until:
            self.engine.now += 0.25
            if self.sampler.is_due(watched=watched):
                taken += 1
                asyncio.run(self.sampler.write(watched=watched))
        return taken

    @property
    def samples(self) -> list[Sample]:
        return read_samples(self.file)


@pytest.fixture
def sampled(tmp_path: Path) -> SampledRun:
    return SampledRun(tmp_path)


def test_usage_is_sampled_every_five_seconds_and_each_second_while_a_client_watches(sampled: SampledRun) -> None:
    assert sampled.pass_seconds(100, watched=False) == 100 / UNWATCHED_SECONDS
    assert sampled.pass_seconds(100, watched=True) == 100 / WATCHED_SECONDS
    assert sampled.pass_seconds(100, watched=False) == 100 / UNWATCHED_SECONDS


def test_a_client_that_starts_to_watch_gets_a_sample_within_a_second(sampled: SampledRun) -> None:
    sampled.pass_seconds(UNWATCHED_SECONDS + 1, watched=False)
    assert sampled.pass_seconds(0.25, watched=True) == 1


def test_samples_that_take_long_are_less_frequent(sampled: SampledRun) -> None:
    sampled.engine.takes_seconds = 0.1
    sampled.pass_seconds(1000, watched=False)
    assert len(sampled.samples) <= 1000 / 20 + 1
    before = len(sampled.samples)
    sampled.pass_seconds(100, watched=True)
    assert len(sampled.samples) - before <= 100 / 1.0


def test_samples_add_up_to_the_time_of_the_incarnation_across_supervisors(sampled: SampledRun) -> None:
    sampled.pass_seconds(20, watched=False)
    sampled.engine.now += 500  # without a supervisor
    sampled.restart_supervisor()
    sampled.pass_seconds(7, watched=True)
    asyncio.run(sampled.sampler.write())
    lived = sampled.engine.now - 100
    assert sum(sample.seconds for sample in sampled.samples) == pytest.approx(lived)
    assert sum(sample.cpu_seconds for sample in sampled.samples) == pytest.approx(lived / 2)
    assert {round(sample.cpu_share, 6) for sample in sampled.samples} == {0.5}
    assert max(sample.seconds for sample in sampled.samples) >= 500


def test_the_last_sample_of_an_incarnation_is_written_once(sampled: SampledRun) -> None:
    sampled.pass_seconds(10, watched=False)
    asyncio.run(sampled.sampler.write())
    known = sampled.samples
    asyncio.run(sampled.sampler.write())
    sampled.restart_supervisor()
    asyncio.run(sampled.sampler.write())
    assert sampled.samples == known


def test_the_time_of_a_sample_that_could_not_be_written_is_in_the_next_sample(sampled: SampledRun) -> None:
    sampled.pass_seconds(5, watched=False)
    away = sampled.file.parent.rename(sampled.file.parent.with_name("away"))
    sampled.pass_seconds(10, watched=False)
    away.rename(sampled.file.parent)
    sampled.pass_seconds(5, watched=False)
    assert [sample.seconds for sample in sampled.samples] == [4.0, 15.0]


def test_a_total_cpu_time_that_decreases_gives_no_negative_sample(sampled: SampledRun) -> None:
    for cpu_seconds in (10.0, 4.0, 6.0):
        sampled.engine.cpu_seconds = cpu_seconds
        sampled.pass_seconds(5, watched=False)
    assert [sample.cpu_seconds for sample in sampled.samples] == [10.0, 0.0, 2.0]


def test_the_total_memory_is_the_limit_of_the_replica_or_the_memory_of_the_machine(
    tmp_path: Path, sampled: SampledRun
) -> None:
    asyncio.run(sampled.sampler.write())
    assert sampled.samples[-1].memory_total_bytes == 8 << 30
    limited = SampledRun(tmp_path / "limited", "framework: plain\nresources: {memory: 2GiB}")
    limited.engine.gpu = GpuUsage(0.5, 1, 2, 3, is_whole=True)
    asyncio.run(limited.sampler.write())
    (sample,) = limited.samples
    assert (sample.memory_bytes, sample.memory_total_bytes) == (MEMORY, 2 << 30)
    assert (sample.gpu_share, sample.gpu_memory_bytes, sample.gpu_memory_total_bytes) == (0.5, 1, 2)
    assert (sample.gpu_devices, sample.gpu_is_whole) == (3, True)


def test_between_exact_measurements_memory_is_estimated_from_the_last_shared_part() -> None:
    share = """
import os, sys
data = bytearray(os.urandom(1 << 20) * 40)
for _ in range(2):
    if os.fork() == 0:
        break
else:
    print("up", flush=True)
sys.stdin.read()
"""
    loop = SteppedLoop()
    meter = UsageSampler(loop)
    with subprocess.Popen(
        [sys.executable, "-c", share], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as family:
        assert family.stdout
        assert family.stdin
        family.stdout.readline()
        keeper = family.pid  # all below it are measured: the two children
        first, again, watched = (
            next(iter(meter.measure({Incarnation(WORKER, 0): keeper}, watched=each))) for each in (False, False, True)
        )
        below = [int(pid) for pid in Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()]
        exact = sum(proportional_bytes(pid) or 0 for pid in below)
        family.stdin.close()
        family.wait()
    assert exact < 40 << 20  # two thirds of what they share with their parent
    for usage in (first, again, watched):
        assert usage.memory_bytes == pytest.approx(exact, rel=0.1)
    loop.close()


def test_a_missing_process_is_not_measured_and_the_usage_of_an_ended_one_is_read_from_its_trace() -> None:
    meter = UsageSampler(SteppedLoop())
    incarnation = Incarnation(WORKER, 0)
    assert list(meter.measure({incarnation: 2**22 + 1}, watched=True)) == []
    assert ended_usage(incarnation, Trace(keeper=1)) is None  # the replica never had a process
    usage = ended_usage(incarnation, Trace(ticks=100, at_seconds=3.5, cpu_seconds=0.25))
    assert usage
    assert (usage.at_seconds, usage.cpu_seconds, usage.memory_bytes) == (3.5, 0.25, None)
