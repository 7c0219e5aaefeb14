"""What the contract says of stopping, where all workers are pods of one Job: who goes alone takes nobody with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.test_contract import test_who_is_stopped_before_it_runs_ends_once_and_says_so  # noqa: F401
from cluster.testbed import KubernetesTestBed, SharedNamespace
from contract.test_runs import test_a_run_that_is_killed_by_force_ends_though_nobody_obeys  # noqa: F401
from contract.test_stop import (  # noqa: F401
    test_patience_may_end_and_does_not_come_back,
    test_who_is_stopped_gently_ends_by_term,
    test_who_never_started_and_who_is_not_known_ends_unseen_once,
)
from drumline.run.event import Exit
from scaffold.supervised import watch, worker
from scaffold.testbeds import LASTING, Behavior
from scaffold.waiting import wait_until


@pytest.fixture
def testbed(shared_namespace: SharedNamespace, tmp_path: Path) -> Iterator[KubernetesTestBed]:
    """A place to try the engine; nothing of what was started there is left when the test has ended."""
    place = KubernetesTestBed(tmp_path, shared_namespace, jobs="indexed")
    try:
        yield place
        wait_until(lambda: not place.left())
    finally:
        place.close()


def test_who_has_ended_is_not_stopped_and_the_others_are(testbed: KubernetesTestBed, tmp_path: Path) -> None:
    both = Behavior(until=1, code=3)
    recorder = watch(testbed, tmp_path, both, both, both)
    recorder.start()
    recorder.until_started()
    recorder.stop(worker(2))
    recorder.until(recorder.ends)
    recorder.let_somebody_pass()
    assert recorder.exits() == {worker(2): Exit(signal=15)}
    testbed.open(1)
    recorder.until_ended()
    assert recorder.exits() == {worker(0): Exit(code=3), worker(1): Exit(code=3), worker(2): Exit(signal=15)}


def test_who_takes_the_run_up_stops_all_of_a_job(testbed: KubernetesTestBed, tmp_path: Path) -> None:
    first = watch(testbed, tmp_path, LASTING, LASTING)
    first.start()
    first.until_started()
    second = first.again(testbed)
    second.stop()
    second.until_ended()
    assert second.exits() == {worker(0): Exit(signal=15), worker(1): Exit(signal=15)}
