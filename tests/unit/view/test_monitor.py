"""The resources that replicas use, now and over time."""

from __future__ import annotations

import math
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from drumline.run.event import AttemptPlaced, Event, Exit, ReplicaExited, ReplicaStarted, RunAccepted
from drumline.run.id import Target
from drumline.run.traces import METRICS, trace_dir
from drumline.store.clock import Moment
from drumline.store.folder import RunFolder
from drumline.store.metrics import Sample, append_sample
from drumline.view.history import Extent, extent, run_use, series
from drumline.view.monitor import add_up, monitor_run
from scaffold.past_runs import NOON, NOW, SECOND, TWO_WORKERS, WORKER, moments, write_run

GIB = 1 << 30
USED = Sample(at=NOON + 50, seconds=2.0, cpu_seconds=1.0, memory_bytes=GIB, memory_total_bytes=8 * GIB, gpu_share=None)


def two_workers(*more: tuple[Moment, Event]) -> list[tuple[Moment, Event]]:
    accepted, started, *_ = moments()
    return [
        (accepted, RunAccepted()),
        (accepted, AttemptPlaced(0, ("127.0.0.1:20000", "127.0.0.1:20001"))),
        (started, ReplicaStarted(WORKER, 0)),
        (started, ReplicaStarted(SECOND, 0)),
        *more,
    ]


def put(folder: RunFolder, replica: object, *samples: Sample, attempt: int = 0) -> None:
    for sample in samples:
        path = folder.path / trace_dir(replica, attempt) / METRICS  # type: ignore[arg-type]
        path.parent.mkdir(parents=True, exist_ok=True)
        append_sample(path, sample)


def test_each_running_replica_has_its_last_sample_and_the_run_has_their_sum(tmp_path: Path) -> None:
    folder = write_run(tmp_path, 4, two_workers(), spec=TWO_WORKERS)
    put(folder, WORKER, USED.replace(cpu_seconds=9.0), USED)
    put(folder, SECOND, USED.replace(seconds=1.0, cpu_seconds=3.0))
    monitored = monitor_run(folder, Target("4"), NOW)
    assert [(row.id, row.phase, row.used and row.used.cpu_share) for row in monitored.rows] == [
        ("4.worker.0", "RUNNING", 0.5),
        ("4.worker.1", "RUNNING", 3.0),
        ("4", "RUNNING", 3.5),
    ]
    assert monitored.total
    assert monitored.total.used
    assert monitored.total.used.memory_bytes == 2 * GIB
    assert monitored.total.used.memory_total_bytes == 8 * GIB  # they are on one machine


def test_the_memory_limits_of_replicas_are_added(tmp_path: Path) -> None:
    folder = write_run(tmp_path, 4, two_workers(), spec=f"{TWO_WORKERS}\nresources: {{memory: 2GiB}}")
    put(folder, WORKER, USED.replace(memory_total_bytes=2 * GIB))
    put(folder, SECOND, USED.replace(memory_total_bytes=2 * GIB))
    total = monitor_run(folder, Target("4"), NOW).total
    assert total
    assert total.used
    assert total.used.memory_total_bytes == 4 * GIB


def test_a_replica_that_does_not_run_uses_nothing_and_comes_last(tmp_path: Path) -> None:
    _, _, fell, _ = moments()
    over = (fell, ReplicaExited(WORKER, 0, 0, Exit(0), fell.since_boot))
    folder = write_run(tmp_path, 4, two_workers(over), spec=TWO_WORKERS)
    put(folder, WORKER, USED)
    put(folder, SECOND, USED)
    monitored = monitor_run(folder, Target("4"), NOW)
    assert [(row.id, row.phase, row.used is None) for row in monitored.rows] == [
        ("4.worker.1", "RUNNING", False),
        ("4.worker.0", "FINISHED", True),
        ("4", "RUNNING", False),
    ]


def test_a_single_replica_has_no_total(tmp_path: Path) -> None:
    folder = write_run(tmp_path, 4, two_workers(), spec=TWO_WORKERS)
    monitored = monitor_run(folder, Target("4", "worker", 1), NOW)
    assert [row.id for row in monitored.rows] == ["4.worker.1"]
    assert monitored.total is None


def test_samples_of_an_earlier_attempt_are_only_in_the_history(tmp_path: Path) -> None:
    _, _, fell, again = moments()
    folder = write_run(
        tmp_path,
        4,
        [
            *two_workers((fell, ReplicaExited(WORKER, 0, 0, Exit(7), fell.since_boot))),
            (fell, ReplicaExited(SECOND, 0, 0, Exit(signal=15), fell.since_boot)),
            (again, AttemptPlaced(1, ("127.0.0.1:20000", "127.0.0.1:20001"))),
            (again, ReplicaStarted(WORKER, 1)),
            (again, ReplicaStarted(SECOND, 1)),
        ],
        spec=f"{TWO_WORKERS}\nrestart: 1",
    )
    put(folder, WORKER, USED)
    assert [row.used for row in monitor_run(folder, Target("4"), NOW).replicas] == [None, None]
    put(folder, WORKER, USED.replace(at=NOON + 90), attempt=1)
    first, second = run_use(folder, Target("4"), NOW).replicas
    assert [sample.at for sample in first.samples] == [
        NOON + 50,
        NOON + 90,
    ]  # the history has the samples of all attempts
    assert second.samples == ()


def test_a_gpu_that_is_shared_counts_once() -> None:
    shared = USED.replace(
        gpu_share=0.25, gpu_memory_bytes=GIB, gpu_memory_total_bytes=80 * GIB, gpu_devices=1, gpu_is_whole=False
    )
    other = shared.replace(gpu_share=0.5, gpu_memory_total_bytes=160 * GIB, gpu_devices=0b110)
    together = add_up([(shared, None), (shared, None), (other, None), (USED, None)])
    assert together
    assert (together.gpu_devices, together.gpu_memory_total_bytes) == (0b111, 240 * GIB)
    assert together.gpu_memory_bytes == 3 * GIB
    assert together.gpu_share == (0.25 + 0.25 + 0.5 * 2) / 3
    unknown = add_up([(shared, None), (shared.replace(gpu_share=None, gpu_memory_bytes=None), None)])
    assert unknown
    assert (unknown.gpu_share, unknown.gpu_memory_bytes) == (None, None)
    assert add_up([]) is None


def cores(sample: Sample) -> float | None:
    return sample.cpu_share


def test_a_mean_is_weighted_by_time() -> None:
    short, long = Sample(at=1.0, seconds=1.0, cpu_seconds=4.0), Sample(at=4.0, seconds=3.0, cpu_seconds=0.0)
    assert extent([short, long], cores) == Extent(0.0, 1.0, 4.0)
    assert extent([], cores) is None
    assert extent([USED], lambda sample: sample.gpu_share) is None


def test_a_series_has_equal_intervals_and_none_for_intervals_without_samples() -> None:
    samples = [Sample(at=1.0, seconds=1.0, cpu_seconds=2.0), Sample(at=4.0, seconds=1.0, cpu_seconds=1.0)]
    assert series(samples, cores, start=0.0, end=4.0, width=4) == [2.0, None, None, 1.0]
    assert series(samples, cores, start=0.0, end=4.0, width=2) == [2.0, 1.0]
    assert series(samples[:1], cores, start=0.0, end=1.0, width=3) == [2.0, 2.0, 2.0]


def seconds_up_to(most: float) -> st.SearchStrategy[float]:
    """Return a strategy for seconds with the precision of a clock."""
    return st.floats(0, most).map(lambda seconds: round(seconds, 6))


@example([(0.0, 1.0, 0.0)], 0.0, 2.2250738585e-313, 1)
@given(
    st.lists(st.tuples(seconds_up_to(100), seconds_up_to(50), seconds_up_to(50)), max_size=20),
    seconds_up_to(100),
    seconds_up_to(100),
    st.integers(1, 50),
)
def test_no_value_of_a_series_exceeds_the_maximum_of_the_samples(
    given_: list[tuple[float, float, float]], start: float, end: float, width: int
) -> None:
    samples = [Sample(at, seconds, cpu) for at, seconds, cpu in given_]
    drawn = series(samples, cores, start=min(start, end), end=max(start, end), width=width)
    assert len(drawn) == width
    whole = extent(samples, cores)
    for value in drawn:
        assert value is None or (whole and value <= whole.most * (1 + 1e-9) and not math.isnan(value))
