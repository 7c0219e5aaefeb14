"""When a gang counts as hung: tables of samples of what its replicas have done."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from drumline.plan.types import ReplicaId
from drumline.run.idle import (
    GangActivity,
    GangSample,
    WorkSample,
    classify_activity,
    start_idle_times,
    update_idle_times,
)

FIRST, SECOND = ReplicaId("worker", 0), ReplicaId("worker", 1)
TIMEOUT, PAUSE = 1800.0, 30.0

Sampler = Callable[[float], WorkSample]


def sampler(
    name: ReplicaId = FIRST,
    *,
    cpu: Callable[[float], float] = lambda _: 0.0,
    disk: Callable[[float], float] = lambda _: 0.0,
    moved: Callable[[float], float] = lambda _: 0.0,
    incarnation: Callable[[float], int] = lambda _: 0,
    stopped: bool = False,
    gpu: float = 0.0,
) -> Sampler:
    """Return a function that gives the sample of a replica after so many seconds."""
    return lambda at: WorkSample(name, 0, incarnation(at), cpu(at), int(disk(at)), int(moved(at)), stopped, gpu)


def verdict_after(
    seconds: float, *replicas: Sampler, said: Callable[[float], object] = lambda _: None, pause: float = PAUSE
) -> GangActivity:
    """Return the classification of a gang after so many seconds of regular samples."""

    def sample(at: float) -> GangSample:
        return GangSample(at, {each.replica: each for each in (replica(at) for replica in replicas)}, said(at))

    idle_times, at = start_idle_times(sample(0.0)), 0.0
    while at < seconds:
        at += pause
        idle_times = update_idle_times(idle_times, sample(at))
    return classify_activity(idle_times, at, TIMEOUT * pause / PAUSE)


@pytest.mark.parametrize(
    ("what", "replicas"),
    [
        ("no replica does anything", [sampler(), sampler(SECOND)]),
        ("one is stopped", [sampler(), sampler(SECOND, stopped=True)]),
        (
            "they wake up now and then, as gloo does",
            [sampler(cpu=lambda at: 0.01 * at), sampler(SECOND, cpu=lambda at: 0.002 * at)],
        ),
        ("one sends itself a few bytes, as a store of torch does", [sampler(moved=lambda at: 4300 * at)]),
        ("one computed for a minute only", [sampler(cpu=lambda at: min(at, 60.0))]),
        ("one read its data only", [sampler(disk=lambda at: min(at, 60.0) * 1e6)]),
    ],
)
def test_a_gang_is_hung(what: str, replicas: list[Sampler]) -> None:
    assert verdict_after(TIMEOUT - 120, *replicas) is not GangActivity.HUNG, what
    assert verdict_after(TIMEOUT + 120, *replicas) is GangActivity.HUNG, what


@pytest.mark.parametrize(
    ("what", "replicas", "said"),
    [
        ("one line of output in twenty minutes", [sampler(), sampler(SECOND)], lambda at: at // 1200),
        ("a slow checkpoint", [sampler(disk=lambda at: 1000 * at), sampler(SECOND)], lambda _: 0),
        (
            "a checkpoint to memory or to another host",
            [sampler(moved=lambda at: 1e6 * at), sampler(SECOND)],
            lambda _: 0,
        ),
        (
            "one returns",
            [sampler(), sampler(SECOND, incarnation=lambda at: int(at // 1000))],
            lambda _: 0,
        ),
    ],
)
def test_a_gang_that_moves_is_not_hung(what: str, replicas: list[Sampler], said: Callable[[float], object]) -> None:
    assert verdict_after(3 * TIMEOUT, *replicas, said=said) is GangActivity.MOVES, what


@pytest.mark.parametrize(
    ("what", "replicas"),
    [
        ("one compiles for hours, the others wait", [sampler(cpu=lambda at: at), sampler(SECOND)]),
        ("all evaluate for hours", [sampler(cpu=lambda at: 2 * at), sampler(SECOND, cpu=lambda at: 2 * at)]),
        ("a second of work in half a minute", [sampler(cpu=lambda at: at // 30)]),
        ("only a GPU works", [sampler(gpu=0.9), sampler(SECOND)]),
    ],
)
def test_a_gang_that_computes_without_output_stays_busy(what: str, replicas: list[Sampler]) -> None:
    assert verdict_after(5 * TIMEOUT, *replicas) is GangActivity.BUSY, what
    assert verdict_after(TIMEOUT - 120, *replicas) is GangActivity.MOVES, what


def test_a_single_clock_tick_is_no_work_for_a_short_timeout() -> None:
    def idle(at: float) -> WorkSample:
        return sampler(cpu=lambda at: at // 5 * 0.01)(at)

    assert verdict_after(3.0, idle, pause=0.05) is GangActivity.HUNG


def test_a_replica_that_exits_or_starts_ends_the_idle_time() -> None:
    one, two = sampler()(0), sampler(SECOND)(0)
    idle_times = start_idle_times(GangSample(0.0, {FIRST: one, SECOND: two}))
    idle_times = update_idle_times(idle_times, GangSample(1000.0, {FIRST: one}))
    assert idle_times.idle_since == 1000.0
    idle_times = update_idle_times(idle_times, GangSample(1500.0, {FIRST: one, SECOND: two}))
    assert idle_times.idle_since == 1500.0
    assert update_idle_times(idle_times, GangSample(2000.0, {FIRST: one, SECOND: two})).idle_since == 1500.0


IDLE = sampler()(0.0)


def idle_since(after_seconds: float, **done: float) -> float:
    """Return since when a replica is idle that has done this at its second sample."""
    idle_times = start_idle_times(GangSample(0.0, {FIRST: IDLE}))
    return update_idle_times(idle_times, GangSample(after_seconds, {FIRST: IDLE.replace(**done)})).idle_since


@pytest.mark.parametrize(
    ("after_seconds", "minimum", "less"),
    [
        (10.0, {"disk_bytes": 4096}, {"disk_bytes": 4095}),
        (0.5, {"moved_bytes": 65536}, {"moved_bytes": 65535}),
        (10.0, {"moved_bytes": 655360}, {"moved_bytes": 655359}),
        (10.0, {"gpu_share": 0.03}, {"gpu_share": 0.02}),
        (1.0, {"cpu_seconds": 0.1}, {"cpu_seconds": 0.09}),
        (100.0, {"cpu_seconds": 3.0}, {"cpu_seconds": 2.9}),
    ],
)
def test_an_amount_counts_as_work_from_a_minimum(
    after_seconds: float, minimum: dict[str, float], less: dict[str, float]
) -> None:
    assert idle_since(after_seconds, **minimum) == after_seconds
    assert idle_since(after_seconds, **less) == 0.0


def test_a_gang_is_hung_as_soon_as_the_timeout_is_over() -> None:
    idle_times = start_idle_times(GangSample(0.0, {FIRST: IDLE}))
    assert classify_activity(idle_times, 60.0, 60.0) is GangActivity.HUNG
    assert classify_activity(idle_times, 59.9, 60.0) is GangActivity.MOVES
    busy = update_idle_times(idle_times, GangSample(30.0, {FIRST: IDLE.replace(cpu_seconds=30.0)}))
    assert classify_activity(busy, 60.0, 60.0) is GangActivity.BUSY
    assert classify_activity(busy, 59.9, 60.0) is GangActivity.MOVES
