"""What every engine promises of those that it starts: told once, as it was, and every line in its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from contract.seat import watch, worker
from contract.sites import NEVER, Deed, Site
from drumline.plan.types import ReplicaId
from drumline.run.event import Event, Exit, ReplicaExited, ReplicaStarted
from drumline.run.traces import trace_dir
from drumline.store.logs import LogReader


def test_each_start_and_each_end_is_told_once_in_that_order(site: Site, tmp_path: Path) -> None:
    watcher = watch(site, tmp_path, *[Deed(until=1)] * 3)
    watcher.start()
    watcher.until_started()
    assert not watcher.ends()
    site.open(1)
    watcher.until_ended()
    assert sorted(watcher.starts()) == sorted(watcher.exits()) == [worker(0), worker(1), worker(2)]
    for index in range(3):
        assert [type(each) for each in watcher.told if _is_about(each, worker(index))] == [
            ReplicaStarted,
            ReplicaExited,
        ]


def test_who_ends_at_once_has_started_before(site: Site, tmp_path: Path) -> None:
    watcher = watch(site, tmp_path, Deed(code=3))
    watcher.start()
    watcher.until_ended()
    assert [type(each) for each in watcher.told if _is_about(each, worker(0))] == [ReplicaStarted, ReplicaExited]


def test_nobody_is_started_twice(site: Site, tmp_path: Path) -> None:
    watcher = watch(site, tmp_path, Deed(("here",), until=1), Deed(("here",)))
    watcher.start()
    watcher.start()
    watcher.until_started()
    watcher.until(watcher.ends)
    watcher.start()
    site.open(1)
    watcher.until_ended()
    watcher.start()
    watcher.let_somebody_pass()
    assert len(watcher.starts()) == len(watcher.ends()) == 2
    assert (watcher.log(worker(0)), watcher.log(worker(1))) == ("here\n", "here\n")


@pytest.mark.parametrize(
    ("deed", "expected"),
    [
        (Deed(), Exit(code=0)),
        (Deed(code=3), Exit(code=3)),
        (Deed(code=143), Exit(code=143)),
        (Deed(signal=9), Exit(signal=9)),
        (Deed(signal=6), Exit(signal=6)),
    ],
    ids=["code 0", "code 3", "code 143", "signal 9", "signal 6"],
)
def test_an_end_is_told_as_it_was(site: Site, tmp_path: Path, deed: Deed, expected: Exit) -> None:
    watcher = watch(site, tmp_path, deed)
    began = watcher.loop.time()
    watcher.start()
    watcher.until_ended()
    (end,) = watcher.ends()
    assert (end.replica, end.attempt, end.incarnation, end.exit) == (worker(0), 0, 0, expected)
    assert began <= end.at_seconds <= watcher.loop.time()


def test_who_goes_later_has_the_later_stamp(site: Site, tmp_path: Path) -> None:
    watcher = watch(site, tmp_path, Deed(until=2), Deed(until=1, code=5))
    watcher.start()
    watcher.until_started()
    site.open(1)
    watcher.until(watcher.ends)
    site.open(2)
    watcher.until_ended()
    first, second = watcher.ends()
    assert (first.replica, second.replica) == (worker(1), worker(0))
    assert first.at_seconds < second.at_seconds


def test_attempts_do_not_mix(site: Site, tmp_path: Path) -> None:
    watcher = watch(site, tmp_path, Deed(("attempt $DRUMLINE_ATTEMPT",), until=NEVER, obeys=False))
    watcher.start(attempt=0)
    watcher.until_said("attempt 0")
    watcher.stop(attempt=0)  # it does not heed that, and is late when the next attempt is there
    watcher.start(attempt=1)
    watcher.until_said("attempt 1", attempt=1)
    watcher.stop(attempt=0, grace_seconds=0)
    watcher.until_ended(attempt=0)
    assert (len(watcher.ends(0)), watcher.ends(1)) == (1, [])
    watcher.stop(attempt=1, grace_seconds=0)
    watcher.until_ended(attempt=1)
    assert (len(watcher.starts(0)), len(watcher.starts(1))) == (1, 1)
    assert (watcher.log(attempt=0), watcher.log(attempt=1)) == ("attempt 0\n", "attempt 1\n")


def test_lines_arrive_in_the_folder_of_the_life(site: Site, tmp_path: Path) -> None:
    watcher = watch(site, tmp_path, Deed(("first", "second"), until=1))
    folder = watcher.run_dir / trace_dir(worker(0), 0)
    watcher.start()
    watcher.until_said("second")
    assert list(watcher.engine.traces()) == [folder]
    assert list(watcher.engine.traces()) == [folder]
    site.open(1)
    watcher.until(watcher.ends)
    assert list(watcher.engine.traces()) == [folder], "what came last has to be looked at, once"
    assert list(watcher.engine.traces()) == []
    blocks = LogReader(folder).read(until=0.0, ended=True)  # two where a moment ends between the lines
    assert b"".join(block.data for block in blocks) == b"first\nsecond\n"


def _is_about(event: Event, replica: ReplicaId) -> bool:
    return isinstance(event, ReplicaStarted | ReplicaExited) and event.replica == replica and event.attempt == 0
