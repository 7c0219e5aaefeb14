"""The usage of pods, from answers of a real cluster, and its totals."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from drumline.engine.kubernetes.api import Api
from drumline.engine.kubernetes.api_errors import RefusedError, UnreachableError
from drumline.engine.kubernetes.metrics import MetricsSource, UsageSample, read_metrics, read_summary
from drumline.engine.kubernetes.podwatch import TrackedPod
from drumline.engine.kubernetes.usage_totals import UNWATCHED_SECONDS, WATCHED_SECONDS, UsageTotals
from drumline.engine.notes import End
from drumline.plan.types import ReplicaId
from drumline.run.event import Exit
from drumline.run.incarnation import Incarnation

METRICS: dict[str, Any] = {
    "kind": "PodMetricsList",
    "apiVersion": "metrics.k8s.io/v1beta1",
    "metadata": {},
    "items": [
        {
            "metadata": {"name": "burn", "namespace": "team"},
            "timestamp": "2026-11-15T21:16:45Z",
            "window": "11.468970944s",
            "containers": [{"name": "replica", "usage": {"cpu": "92m", "memory": "54760Ki"}}],
        }
    ],
}
SUMMARY: dict[str, Any] = {
    "node": {"nodeName": "node1"},
    "pods": [
        {
            "podRef": {"name": "burn", "namespace": "team", "uid": "abb56862"},
            "startTime": "2026-11-15T21:16:34Z",
            "containers": [
                {"name": "sidecar", "cpu": {"time": "2026-11-15T21:16:59Z", "usageCoreNanoSeconds": 7}},
                {
                    "name": "replica",
                    "startTime": "2026-11-15T21:16:34Z",
                    "cpu": {
                        "time": "2026-11-15T21:16:59Z",
                        "usageNanoCores": 103111809,
                        "usageCoreNanoSeconds": 2243748041,
                    },
                    "memory": {"time": "2026-11-15T21:16:59Z", "usageBytes": 56107008, "workingSetBytes": 56074240},
                },
            ],
        },
        {"podRef": {"name": "burn", "namespace": "another"}, "containers": []},
    ],
}
BEGAN = 1794777394.0  # 2026-11-15T21:16:34Z
FROM_API = UsageSample("burn", BEGAN + 11, 0.092, None, 54760 << 10)
FROM_KUBELET = UsageSample("burn", BEGAN + 25, 0.103111809, 2.243748041, 56074240)
WORKER = Incarnation(ReplicaId("worker", 0), 0, 0)


def test_the_metrics_api_gives_the_cpu_rate_and_memory() -> None:
    assert list(read_metrics(METRICS)) == [FROM_API]


def test_a_kubelet_gives_the_total_cpu_seconds() -> None:
    assert list(read_summary(SUMMARY, "team")) == [FROM_KUBELET]


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"items": None},
        {"items": [{"metadata": {"name": "burn"}, "timestamp": None}]},
        {"items": [{"metadata": {"name": "burn"}, "containers": []}]},
    ],
)
def test_an_empty_answer_is_no_sample(answer: dict[str, Any]) -> None:
    assert list(read_metrics(answer)) == []


def test_missing_values_of_an_answer_are_none() -> None:
    item = {"metadata": {"name": "burn"}, "timestamp": "2026-11-15T21:16:45Z", "containers": [{"name": "replica"}]}
    assert list(read_metrics({"items": [item]})) == [UsageSample("burn", BEGAN + 11)]
    assert list(read_summary({"pods": [{"podRef": {"namespace": "team"}}, {}]}, "team")) == []


class Server:
    """A server with one answer or error for each API."""

    namespace = "team"

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[str] = []

    async def raw_get(self, path: str, **params: str) -> Any:
        assert params
        which = "kubelet" if "/proxy/stats/summary" in path else "metrics"
        self.asked.append(which)
        answer = self.answers[which]
        if isinstance(answer, Exception):
            raise answer
        return answer


def ask(server: Server, times: int = 1) -> list[UsageSample]:
    async def read() -> list[UsageSample]:
        source = MetricsSource(cast("Api", server), "run=4")
        found: list[UsageSample] = []
        for _ in range(times):
            found = await source.read({"burn": "node1"})
        return found

    return asyncio.run(read())


def test_without_a_metrics_api_the_kubelets_are_used_from_then_on() -> None:
    server = Server(metrics=RefusedError("no such path", status=404), kubelet=SUMMARY)
    assert ask(server, times=3) == [FROM_KUBELET]
    assert server.asked == ["metrics", "kubelet", "kubelet", "kubelet"]


def test_without_any_answer_there_are_no_samples_and_no_error() -> None:
    server = Server(metrics=UnreachableError("out of order"), kubelet=RefusedError("forbidden", status=403))
    assert ask(server, times=2) == []


class Clock:
    """A clock that stands still until a test changes it."""

    def __init__(self) -> None:
        self.wall = BEGAN + 60

    def now(self) -> float:
        return self.wall - BEGAN + 1000


def totals_of(clock: Clock, boot: str = "b1") -> UsageTotals:
    return UsageTotals(clock.now, lambda: clock.wall, boot)


def tracked_pod(folder: Path, *, ended: float | None = None) -> TrackedPod:
    tracked = TrackedPod(WORKER, folder)
    tracked.pod, tracked.started_at = {"metadata": {"name": "burn"}}, BEGAN
    tracked.end = None if ended is None else End(Exit(0), ended, has_started=True)
    return tracked


def test_rates_are_added_up_over_the_time_between_samples(tmp_path: Path) -> None:
    totals = totals_of(Clock())
    totals.add([UsageSample("burn", BEGAN + 10, cpus=0.5, memory_bytes=100)])
    (first,) = totals.measure([tracked_pod(tmp_path)])
    assert (first.started_seconds, first.at_seconds, first.cpu_seconds, first.memory_bytes) == (1000, 1010, 5.0, 100)
    totals.add([UsageSample("burn", BEGAN + 25, cpus=2.0, memory_bytes=200)])
    (second,) = totals.measure([tracked_pod(tmp_path)])
    assert (second.at_seconds, second.cpu_seconds, second.memory_bytes) == (1025, 35.0, 200)
    (again,) = totals.measure([tracked_pod(tmp_path)])
    assert again == second  # there was no new sample
    (end,) = totals.measure([tracked_pod(tmp_path, ended=1031.5)])
    assert (end.started_seconds, end.at_seconds, end.cpu_seconds, end.memory_bytes) == (1000, 1031.5, 35.0, None)


def test_the_total_of_a_kubelet_is_used_as_it_is(tmp_path: Path) -> None:
    totals = totals_of(Clock())
    totals.add([FROM_KUBELET])
    (used,) = totals.measure([tracked_pod(tmp_path)])
    assert (used.at_seconds, used.cpu_seconds, used.memory_bytes) == (1025, 2.243748041, 56074240)


def test_a_pod_without_a_sample_is_left_out(tmp_path: Path) -> None:
    assert list(totals_of(Clock()).measure([tracked_pod(tmp_path)])) == []


def test_a_supervisor_that_resumes_a_run_continues_its_totals(tmp_path: Path) -> None:
    clock = Clock()
    before = totals_of(clock)
    before.add([UsageSample("burn", BEGAN + 10, cpus=0.5)])
    (first,) = before.measure([tracked_pod(tmp_path)])
    clock.wall += 0.25
    after = totals_of(clock)
    (same,) = after.measure([tracked_pod(tmp_path)])
    assert same == first
    after.add([UsageSample("burn", BEGAN + 20, cpus=1.0)])
    (second,) = after.measure([tracked_pod(tmp_path)])
    assert (second.started_seconds, second.cpu_seconds) == (first.started_seconds, 15.0)


def test_totals_that_cannot_be_read_start_from_zero(tmp_path: Path) -> None:
    (tmp_path / "usage").write_text("[1, 2")
    totals = totals_of(Clock())
    assert list(totals.measure([tracked_pod(tmp_path)])) == []
    totals.add([FROM_API])
    assert len(list(totals.measure([tracked_pod(tmp_path)]))) == 1


def test_usage_is_requested_more_often_while_the_run_is_monitored() -> None:
    clock = Clock()
    totals = totals_of(clock)
    assert totals.is_due(watched=False)
    assert not totals.is_due(watched=True)
    clock.wall += WATCHED_SECONDS
    assert not totals.is_due(watched=False)
    assert totals.is_due(watched=True)
    clock.wall += UNWATCHED_SECONDS
    assert totals.is_due(watched=False)
