"""What the contract says of stopping, where all workers are pods of one Job: who goes alone takes nobody with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.site import Ground, KubernetesSite
from cluster.test_contract import test_who_is_stopped_before_it_runs_ends_once_and_says_so  # noqa: F401
from contract.seat import watch, worker
from contract.sites import LASTING, Deed, wait_until
from contract.test_runs import test_a_run_that_is_killed_by_force_ends_though_nobody_obeys  # noqa: F401
from contract.test_stop import (  # noqa: F401
    test_patience_may_end_and_does_not_come_back,
    test_who_is_stopped_gently_ends_by_term,
    test_who_never_started_and_who_is_not_known_ends_unseen_once,
)
from drumline.run.event import Exit


@pytest.fixture
def site(ground: Ground, tmp_path: Path) -> Iterator[KubernetesSite]:
    """A place to try the engine; nothing of what was started there is left when the test has ended."""
    place = KubernetesSite(tmp_path, ground, jobs="indexed")
    try:
        yield place
        wait_until(lambda: not place.left())
    finally:
        place.close()


def test_who_has_ended_is_not_stopped_and_the_others_are(site: KubernetesSite, tmp_path: Path) -> None:
    both = Deed(until=1, code=3)
    watcher = watch(site, tmp_path, both, both, both)
    watcher.start()
    watcher.until_started()
    watcher.stop(worker(2))
    watcher.until(watcher.ends)
    watcher.let_somebody_pass()
    assert watcher.exits() == {worker(2): Exit(signal=15)}
    site.open(1)
    watcher.until_ended()
    assert watcher.exits() == {worker(0): Exit(code=3), worker(1): Exit(code=3), worker(2): Exit(signal=15)}


def test_who_takes_the_run_up_stops_all_of_a_job(site: KubernetesSite, tmp_path: Path) -> None:
    first = watch(site, tmp_path, LASTING, LASTING)
    first.start()
    first.until_started()
    second = first.again(site)
    second.stop()
    second.until_ended()
    assert second.exits() == {worker(0): Exit(signal=15), worker(1): Exit(signal=15)}
