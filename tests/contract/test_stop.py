"""What every engine promises of those that it stops: TERM, the grace, KILL, and nothing is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from contract.seat import watch, worker
from contract.sites import LASTING, Deed, Site
from drumline.plan.types import ReplicaId
from drumline.run.event import Exit

DEAF = Deed(("ready",), until=LASTING.until, obeys=False)
STRANGER = ReplicaId("worker", 7)


def test_who_is_stopped_gently_ends_by_term(site: Site, tmp_path: Path) -> None:
    watcher = watch(site, tmp_path, LASTING, LASTING)
    watcher.start()
    watcher.until_started()
    watcher.stop(worker(1))
    watcher.until(watcher.ends)
    watcher.let_somebody_pass()
    assert watcher.exits() == {worker(1): Exit(signal=15)}
    watcher.stop()
    watcher.until_ended()
    assert watcher.exits() == {worker(0): Exit(signal=15), worker(1): Exit(signal=15)}


def test_who_cleans_up_first_ends_as_it_likes(site: Site, tmp_path: Path) -> None:
    watcher = watch(site, tmp_path, Deed(("ready",), until=LASTING.until, code_on_term=42))
    watcher.start()
    watcher.until_said("ready")
    watcher.stop()
    watcher.until_ended()
    assert watcher.exits() == {worker(0): Exit(code=42)}


def test_who_does_not_obey_is_killed_when_the_grace_is_over_and_not_before(site: Site, tmp_path: Path) -> None:
    watcher = watch(site, tmp_path, DEAF)
    watcher.start()
    watcher.until_said("ready")
    asked_at = watcher.loop.time()
    watcher.stop(grace_seconds=0.3)
    watcher.until_ended()
    (end,) = watcher.ends()
    assert end.exit == Exit(signal=9)
    assert end.at_seconds >= asked_at + 0.3


def test_without_grace_nobody_is_asked(site: Site, tmp_path: Path) -> None:
    watcher = watch(site, tmp_path, Deed(("ready",), until=LASTING.until, code_on_term=42), DEAF)
    watcher.start()
    for index in (0, 1):
        watcher.until_said("ready", replica=worker(index))
    watcher.stop(grace_seconds=0)
    watcher.until_ended()
    assert set(watcher.exits().values()) == {Exit(signal=9)}


def test_patience_may_end_and_does_not_come_back(site: Site, tmp_path: Path) -> None:
    watcher = watch(site, tmp_path, DEAF)
    watcher.start()
    watcher.until_said("ready")
    watcher.stop()
    watcher.stop()
    watcher.let_somebody_pass()
    assert not watcher.ends()
    watcher.stop(grace_seconds=0)
    watcher.stop()
    watcher.until_ended()
    watcher.stop()
    watcher.stop(grace_seconds=0)
    watcher.let_somebody_pass()
    assert [end.exit for end in watcher.ends()] == [Exit(signal=9)]


@pytest.mark.parametrize("grace_seconds", [0, 60])
def test_who_never_started_and_who_is_not_known_ends_unseen_once(
    site: Site, tmp_path: Path, grace_seconds: float
) -> None:
    watcher = watch(site, tmp_path, Deed(), Deed())
    for _ in range(2):
        watcher.stop(worker(0), worker(1), STRANGER, grace_seconds=grace_seconds)
    watcher.until(lambda: len(watcher.ends()) == 3)
    watcher.let_somebody_pass()
    assert sorted(end.replica for end in watcher.ends()) == [worker(0), worker(1), STRANGER]
    assert {end.exit for end in watcher.ends()} == {Exit(message="it was never started")}
    assert not watcher.starts()


@pytest.mark.parametrize("grace_seconds", [0, 60])
def test_who_is_stopped_before_its_start_was_told_ends_once(site: Site, tmp_path: Path, grace_seconds: float) -> None:
    watcher = watch(site, tmp_path, *[LASTING] * 5)
    watcher.start()
    watcher.stop(grace_seconds=grace_seconds)
    watcher.until_ended()
    assert sorted(watcher.exits()) == [worker(index) for index in range(5)]
    assert len(watcher.ends()) == 5
    assert set(watcher.exits().values()) == {Exit(signal=15 if grace_seconds else 9)}


def test_who_had_ended_before_it_was_stopped_ended_as_it_did(site: Site, tmp_path: Path) -> None:
    watcher = watch(site, tmp_path, Deed(code=3), LASTING)
    watcher.start()
    site.wait_ended(watcher.run_dir, worker(0))
    watcher.stop()
    watcher.until_ended()
    assert watcher.exits() == {worker(0): Exit(code=3), worker(1): Exit(signal=15)}
    assert len(watcher.ends()) == 2


@pytest.mark.parametrize("grace_seconds", [None, 0, 60])
def test_when_an_end_is_told_nothing_of_the_replica_is_left(
    site: Site, tmp_path: Path, grace_seconds: float | None
) -> None:
    until = 1 if grace_seconds is None else LASTING.until
    watcher = watch(site, tmp_path, Deed(("ready",), until=until, leaves_child=True))
    watcher.start()
    watcher.until_said("ready")
    if grace_seconds is None:
        site.open(1)
    else:
        watcher.stop(grace_seconds=grace_seconds)
    watcher.until(watcher.ends)
    assert site.left() == []
