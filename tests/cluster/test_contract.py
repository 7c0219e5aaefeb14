"""The contract of all engines, on a real cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.testbed import KubernetesTestBed, SharedNamespace
from contract.suite import Exceptions, assert_none_left, contract_tests, skip_exception
from drumline.run.event import Exit
from scaffold.supervised import watch, worker
from scaffold.testbeds import RUNS_UNTIL_STOPPED, Behavior, EngineTestBed

_KILLS = "a cluster asks with TERM before it kills, however short the grace is"
_NO_DATA = "a pod begins when its data are there, and the helper that makes them has ended without"
_ALL_NAMES = "a pod begins when the names of all are known"
EXCEPTIONS: Exceptions = {
    "test_build": "an image has its environment",
    "test_observation": "drumline does not observe processes in pods: there are no pulses, sockets and stacks",
    "test_faults": "drumline injects no faults into replicas in pods",
    "test_serve": "TensorBoard does not run in the cluster",
    "test_usage": "what pods use is known half a minute after they start; test_metrics.py tries it",
    "test_a_gang_that_was_only_checked_claims_nothing": "the connections to the cluster are descriptors",
    "test_an_end_is_reported_with_its_status[code 143]": "a cluster reports the signal TERM as exit code 143",
    "test_the_next_supervisor_can_stop_replicas_at_once[0-9]": _KILLS,
    "test_without_grace_no_replica_is_terminated_first": _KILLS,
    "test_the_next_supervisor_completes_a_gang_that_was_not_all_started": _ALL_NAMES,
    "test_a_stop_keeps_the_exit_of_an_ended_replica": f"{_ALL_NAMES}; the first test below is about those",
    "test_a_stop_before_the_start_was_reported_ends_once": f"{_ALL_NAMES}; the last test below is about those",
    "test_a_helper_is_stopped_like_a_replica": _NO_DATA,
    "test_a_helper_is_reported_as_a_replica_of_the_first_attempt[3]": _NO_DATA,
}

globals().update(contract_tests())


@pytest.fixture
def testbed(
    request: pytest.FixtureRequest, shared_namespace: SharedNamespace, tmp_path: Path
) -> Iterator[EngineTestBed]:
    """Yield a testbed of the engine."""
    skip_exception(request, EXCEPTIONS)
    place = KubernetesTestBed(tmp_path, shared_namespace)
    yield from assert_none_left(place, place.describe)


def test_the_exit_of_a_replica_that_ended_before_the_stop_is_kept(testbed: KubernetesTestBed, tmp_path: Path) -> None:
    recorder = watch(testbed, tmp_path, Behavior(code=3), RUNS_UNTIL_STOPPED)
    recorder.start()
    recorder.until(lambda: worker(1) in recorder.starts())
    testbed.wait_ended(recorder.run_dir, worker(0))
    recorder.stop()
    recorder.until_ended()
    assert recorder.exits() == {worker(0): Exit(code=3), worker(1): Exit(signal=15)}


@pytest.mark.parametrize("grace_seconds", [0, 60])
def test_a_replica_that_is_stopped_before_it_runs_has_one_exit_that_is_no_success(
    testbed: KubernetesTestBed, tmp_path: Path, grace_seconds: float
) -> None:
    recorder = watch(testbed, tmp_path, *[RUNS_UNTIL_STOPPED] * 5)
    recorder.start()
    recorder.stop(grace_seconds=grace_seconds)
    recorder.until_ended()
    assert sorted(end.replica for end in recorder.ends()) == [worker(index) for index in range(5)]
    assert not any(end.exit.ok for end in recorder.ends())
