"""Tests of `tests/contract` about stops and kills, repeated with all workers as pods of one indexed Job.

The end of one pod must not end the other pods of the Job.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import test_contract
from cluster.testbed import KubernetesTestBed, SharedNamespace
from contract.suite import assert_none_left, contract_tests, module_tests, skip_exception
from drumline.run.event import Exit
from scaffold.supervised import watch, worker
from scaffold.testbeds import RUNS_UNTIL_STOPPED, Behavior, EngineTestBed

# pytest collects here all of `contract/test_stop.py`, and the tests of two other modules in which a replica is stopped.
_OTHER_TESTS = {**contract_tests("test_runs"), **module_tests(test_contract)}
_OTHER_STOPS = {
    name: each for name, each in _OTHER_TESTS.items() if "killed" in name or "stopped_before_it_runs" in name
}
globals().update({**contract_tests("test_stop"), **_OTHER_STOPS})


@pytest.fixture
def testbed(
    request: pytest.FixtureRequest, shared_namespace: SharedNamespace, tmp_path: Path
) -> Iterator[EngineTestBed]:
    """Yield a testbed of the engine."""
    skip_exception(request, test_contract.EXCEPTIONS)
    place = KubernetesTestBed(tmp_path, shared_namespace, jobs="indexed")
    yield from assert_none_left(place, place.describe)


def test_a_stopped_replica_does_not_stop_the_others_of_its_job(testbed: KubernetesTestBed, tmp_path: Path) -> None:
    exits_at_gate = Behavior(until=1, code=3)
    recorder = watch(testbed, tmp_path, exits_at_gate, exits_at_gate, exits_at_gate)
    recorder.start()
    recorder.until_started()
    recorder.stop(worker(2))
    recorder.until(recorder.ends)
    recorder.run_other_replica()
    assert recorder.exits() == {worker(2): Exit(signal=15)}
    testbed.open(1)
    recorder.until_ended()
    assert recorder.exits() == {worker(0): Exit(code=3), worker(1): Exit(code=3), worker(2): Exit(signal=15)}


def test_a_new_supervisor_stops_all_replicas_of_a_job(testbed: KubernetesTestBed, tmp_path: Path) -> None:
    first = watch(testbed, tmp_path, RUNS_UNTIL_STOPPED, RUNS_UNTIL_STOPPED)
    first.start()
    first.until_started()
    second = first.again(testbed)
    second.stop()
    second.until_ended()
    assert second.exits() == {worker(0): Exit(signal=15), worker(1): Exit(signal=15)}
