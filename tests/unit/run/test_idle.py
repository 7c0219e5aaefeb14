"""When a line counts as hung: looks at what its replicas have done, as tables."""

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

Doing = Callable[[float], WorkSample]


def does(
    name: ReplicaId = FIRST,
    *,
    cpu: Callable[[float], float] = lambda _: 0.0,
    disk: Callable[[float], float] = lambda _: 0.0,
    moved: Callable[[float], float] = lambda _: 0.0,
    life: Callable[[float], int] = lambda _: 0,
    stopped: bool = False,
    gpu: float = 0.0,
) -> Doing:
    """What a replica has done after so many seconds."""
    return lambda at: WorkSample(name, 0, life(at), cpu(at), int(disk(at)), int(moved(at)), stopped, gpu)


def verdict_after(
    seconds: float, *replicas: Doing, said: Callable[[float], object] = lambda _: None, pause: float = PAUSE
) -> GangActivity:
    """What is thought of a line after so long, looked at every now and then."""

    def look(at: float) -> GangSample:
        return GangSample(at, {pulse.replica: pulse for pulse in (replica(at) for replica in replicas)}, said(at))

    quiet, at = start_idle_times(look(0.0)), 0.0
    while at < seconds:
        at += pause
        quiet = update_idle_times(quiet, look(at))
    return classify_activity(quiet, at, TIMEOUT * pause / PAUSE)


@pytest.mark.parametrize(
    ("what", "replicas"),
    [
        ("nobody does anything", [does(), does(SECOND)]),
        ("one is stopped", [does(), does(SECOND, stopped=True)]),
        (
            "they wake up now and then, as gloo does",
            [does(cpu=lambda at: 0.01 * at), does(SECOND, cpu=lambda at: 0.002 * at)],
        ),
        ("one passes itself a few bytes, as a store of torch does", [does(moved=lambda at: 4300 * at)]),
        ("one worked for a minute and no more", [does(cpu=lambda at: min(at, 60.0))]),
        ("one read its data and no more", [does(disk=lambda at: min(at, 60.0) * 1e6)]),
    ],
)
def test_a_line_is_hung(what: str, replicas: list[Doing]) -> None:
    assert verdict_after(TIMEOUT - 120, *replicas) is not GangActivity.HUNG, what
    assert verdict_after(TIMEOUT + 120, *replicas) is GangActivity.HUNG, what


@pytest.mark.parametrize(
    ("what", "replicas", "said"),
    [
        ("one line in twenty minutes", [does(), does(SECOND)], lambda at: at // 1200),
        ("a slow checkpoint", [does(disk=lambda at: 1000 * at), does(SECOND)], lambda _: 0),
        ("a checkpoint to memory or to elsewhere", [does(moved=lambda at: 1e6 * at), does(SECOND)], lambda _: 0),
        ("one comes back to life", [does(), does(SECOND, life=lambda at: int(at // 1000))], lambda _: 0),
    ],
)
def test_a_line_that_moves_is_not(what: str, replicas: list[Doing], said: Callable[[float], object]) -> None:
    assert verdict_after(3 * TIMEOUT, *replicas, said=said) is GangActivity.MOVES, what


@pytest.mark.parametrize(
    ("what", "replicas"),
    [
        ("one compiles for hours, the others wait", [does(cpu=lambda at: at), does(SECOND)]),
        ("all evaluate for hours", [does(cpu=lambda at: 2 * at), does(SECOND, cpu=lambda at: 2 * at)]),
        ("a second of work in half a minute", [does(cpu=lambda at: at // 30)]),
        ("a GPU works, and nobody else", [does(gpu=0.9), does(SECOND)]),
    ],
)
def test_a_line_that_computes_and_says_nothing_is_busy_for_ever(what: str, replicas: list[Doing]) -> None:
    assert verdict_after(5 * TIMEOUT, *replicas) is GangActivity.BUSY, what
    assert verdict_after(TIMEOUT - 120, *replicas) is GangActivity.MOVES, what


def test_a_short_timeout_is_not_deceived_by_the_ticks_of_a_clock() -> None:
    def idle(at: float) -> WorkSample:
        return does(cpu=lambda at: at // 5 * 0.01)(at)

    assert verdict_after(3.0, idle, pause=0.05) is GangActivity.HUNG


def test_somebody_who_leaves_or_comes_is_a_sign_of_life() -> None:
    one, two = does()(0), does(SECOND)(0)
    quiet = start_idle_times(GangSample(0.0, {FIRST: one, SECOND: two}))
    quiet = update_idle_times(quiet, GangSample(1000.0, {FIRST: one}))
    assert quiet.idle_since == 1000.0
    quiet = update_idle_times(quiet, GangSample(1500.0, {FIRST: one, SECOND: two}))
    assert quiet.idle_since == 1500.0
    assert update_idle_times(quiet, GangSample(2000.0, {FIRST: one, SECOND: two})).idle_since == 1500.0


IDLE = does()(0.0)


def looked(after_seconds: float, **done: float) -> float:
    """Since when a replica has been idle that has done this after a second look."""
    quiet = start_idle_times(GangSample(0.0, {FIRST: IDLE}))
    return update_idle_times(quiet, GangSample(after_seconds, {FIRST: IDLE.replace(**done)})).idle_since


@pytest.mark.parametrize(
    ("after_seconds", "least", "less"),
    [
        (10.0, {"disk_bytes": 4096}, {"disk_bytes": 4095}),
        (0.5, {"moved_bytes": 65536}, {"moved_bytes": 65535}),
        (10.0, {"moved_bytes": 655360}, {"moved_bytes": 655359}),
        (10.0, {"gpu_share": 0.03}, {"gpu_share": 0.02}),
        (1.0, {"cpu_seconds": 0.1}, {"cpu_seconds": 0.09}),
        (100.0, {"cpu_seconds": 3.0}, {"cpu_seconds": 2.9}),
    ],
)
def test_what_a_replica_does_is_work_from_a_least_amount_on(
    after_seconds: float, least: dict[str, float], less: dict[str, float]
) -> None:
    assert looked(after_seconds, **least) == after_seconds
    assert looked(after_seconds, **less) == 0.0


def test_a_gang_is_hung_as_soon_as_the_time_is_over() -> None:
    quiet = start_idle_times(GangSample(0.0, {FIRST: IDLE}))
    assert classify_activity(quiet, 60.0, 60.0) is GangActivity.HUNG
    assert classify_activity(quiet, 59.9, 60.0) is GangActivity.MOVES
    busy = update_idle_times(quiet, GangSample(30.0, {FIRST: IDLE.replace(cpu_seconds=30.0)}))
    assert classify_activity(busy, 60.0, 60.0) is GangActivity.BUSY
    assert classify_activity(busy, 59.9, 60.0) is GangActivity.MOVES
