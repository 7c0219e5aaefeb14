"""What every engine promises of what replicas use: of those who run, and once more of those who have ended."""

from __future__ import annotations

from pathlib import Path

from contract.seat import Watcher, able, watch, worker
from contract.sites import Deed, Site
from drumline.engine.abilities import Measurable
from drumline.run.usage import Usage


def usage(watcher: Watcher, *, watched: bool) -> list[Usage]:
    """What the engine measures."""
    return [*watcher.loop.wait(able(watcher.engine, Measurable).usage(watched=watched))]


def test_everybody_who_runs_is_measured_and_who_has_ended_once_more(site: Site, tmp_path: Path) -> None:
    watcher = watch(site, tmp_path, Deed(until=1), Deed(until=2))
    able(watcher.engine, Measurable)
    watcher.start()
    watcher.until_started()
    running = [each for each in usage(watcher, watched=True) if each.memory_bytes is not None]
    assert sorted(each.replica for each in running) == [worker(0), worker(1)]
    site.open(1)
    watcher.until(watcher.ends)
    told = usage(watcher, watched=False)
    assert sorted(each.replica for each in told) == [worker(0), worker(1)]
    assert [each.replica for each in usage(watcher, watched=True)] == [worker(1)]
    site.open(2)
    watcher.until_ended()
    assert worker(1) in [each.replica for each in usage(watcher, watched=False)]
    assert usage(watcher, watched=False) == []


def test_what_is_measured_grows_and_fits_into_the_life(site: Site, tmp_path: Path) -> None:
    watcher = watch(site, tmp_path, Deed(until=1))
    able(watcher.engine, Measurable)
    watcher.start()
    watcher.until_started()
    (first,) = usage(watcher, watched=False)
    assert (first.attempt, first.incarnation) == (0, 0)
    site.open(1)
    watcher.until(watcher.ends)
    (last,) = usage(watcher, watched=False)
    (end,) = watcher.ends()
    assert last.at_seconds == end.at_seconds
    assert first.started_seconds == last.started_seconds <= first.at_seconds <= last.at_seconds
    assert 0 <= first.cpu_seconds <= last.cpu_seconds


def test_a_life_that_was_taken_up_is_measured_from_its_start(site: Site, tmp_path: Path) -> None:
    watcher = watch(site, tmp_path, Deed(until=1))
    able(watcher.engine, Measurable)
    watcher.start()
    watcher.until_started()
    (before,) = usage(watcher, watched=False)
    another = watcher.again(site)
    another.start()
    another.until_started()
    (after,) = usage(another, watched=False)
    assert (after.replica, after.started_seconds) == (before.replica, before.started_seconds)
    site.open(1)
    another.until_ended()
