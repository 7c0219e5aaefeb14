"""The contract's tests of whole runs, with an operator: a JobSet restarts a gang by itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.testbed import KubernetesTestBed, SharedNamespace
from contract.suite import Exceptions, assert_none_left, contract_tests, skip_exception
from contract.test_runs import open_supervised, return_to, until_running
from drumline.engine.kubernetes.place import place
from drumline.plan.types import Plan
from drumline.run.state import Phase
from scaffold.supervised import cast, watch, worker, workers
from scaffold.testbeds import RUNS_UNTIL_STOPPED, Behavior, EngineTestBed

_WHOLE_RUNS = (
    "a JobSet's replicas are started and stopped together, in no order; the cluster is that of test_contract.py"
)
EXCEPTIONS: Exceptions = {
    **dict.fromkeys(("test_build", "test_observation", "test_place", "test_prepare", "test_return"), _WHOLE_RUNS),
    **dict.fromkeys(("test_faults", "test_serve", "test_start", "test_stop", "test_units", "test_usage"), _WHOLE_RUNS),
    "test_ps_are_stopped_after_the_workers": _WHOLE_RUNS,
    "test_the_first_failure_without_a_supervisor_is_the_cause": "the last test below checks the same with two replicas",
}

globals().update(contract_tests())


@pytest.fixture
def testbed(
    request: pytest.FixtureRequest, shared_namespace: SharedNamespace, tmp_path: Path
) -> Iterator[EngineTestBed]:
    """Yield a testbed of the engine."""
    skip_exception(request, EXCEPTIONS)
    place = KubernetesTestBed(tmp_path, shared_namespace, "jobset")
    yield from assert_none_left(place, place.describe)


def domains(testbed: KubernetesTestBed, plan: Plan, attempt: int) -> set[str]:
    """Return the suffix of the names by which replicas reach each other."""
    placement = place(plan, attempt=attempt)
    return {place.host.partition(".")[2] for place in placement.values()}


def test_a_restarted_gang_has_the_same_names(
    testbed: KubernetesTestBed, shared_namespace: SharedNamespace, tmp_path: Path
) -> None:
    behaviors = {"worker.0": (RUNS_UNTIL_STOPPED, Behavior(until=1)), "worker.1": (Behavior(code=3), Behavior(until=1))}
    supervised = open_supervised(testbed, tmp_path, cast(testbed, "worker*2 crash=1 early=1", behaviors))
    supervised.until(lambda: (supervised.state.attempt, supervised.state.phase) == (1, Phase.RUNNING))
    services = {each["metadata"]["name"] for each in shared_namespace.kubectl.items("services")}
    assert domains(testbed, supervised.plan, 1) == domains(testbed, supervised.plan, 0)
    assert domains(testbed, supervised.plan, 1) <= services
    testbed.open(1)
    assert supervised.until_over().phase is Phase.FINISHED


def test_the_next_jobset_can_use_the_name_of_a_stopped_one(testbed: KubernetesTestBed, tmp_path: Path) -> None:
    recorder = watch(testbed, tmp_path, RUNS_UNTIL_STOPPED._replace(says=("attempt $DRUMLINE_ATTEMPT",)))
    for attempt in (0, 1):
        recorder.start(attempt=attempt)
        recorder.until_said(f"attempt {attempt}", attempt=attempt)
        recorder.stop(attempt=attempt)
        recorder.until_ended(attempt=attempt)
    assert (len(recorder.ends(0)), len(recorder.ends(1))) == (1, 1)


def test_the_first_failure_of_two_without_a_supervisor_is_the_cause(testbed: KubernetesTestBed, tmp_path: Path) -> None:
    supervised = open_supervised(
        testbed, tmp_path, workers(testbed, Behavior(until=2, code=1), Behavior(until=1, code=3))
    )
    until_running(supervised)
    testbed.open(1)
    testbed.wait_ended(supervised.folder.path, worker(1))
    return_to(supervised)
    state = supervised.until_over()
    assert state.ending
    assert state.ending.cause
    assert (state.ending.cause.replica, state.ending.cause.exit.code) == (worker(1), 3)
