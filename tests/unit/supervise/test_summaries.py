"""The detector of summaries checks at increasing intervals, and stops when it has found some."""

from __future__ import annotations

from pathlib import Path

from drumline.run.event import Event, SummariesFound
from drumline.supervise.summaries import SummaryDetector
from scaffold.loops import SimulatedTimeLoop
from scaffold.summaries import write_scalars


class WatchedRun:
    """A detector with simulated time, the times of its checks, and the events that it has reported."""

    def __init__(self, folder: str | None) -> None:
        self.loop = SimulatedTimeLoop()
        self.folder = folder
        self.checks: list[float] = []
        self.reported: list[Event] = []
        SummaryDetector(self.loop, self._check, self.reported.append).check()

    def _check(self) -> str | None:
        self.checks.append(self.loop.time())
        return self.folder


def test_the_folder_is_checked_every_two_seconds_and_later_every_thirty_seconds(tmp_path: Path) -> None:
    watched = WatchedRun(str(tmp_path))
    watched.loop.pass_time(21)
    assert len(watched.checks) == 11
    watched.loop.pass_time(3600)
    before = len(watched.checks)
    watched.loop.pass_time(3600)
    assert len(watched.checks) - before == 120
    assert watched.reported == []


def test_summaries_are_reported_once_and_end_the_checks(tmp_path: Path) -> None:
    watched = WatchedRun(str(tmp_path))
    watched.loop.pass_time(5)
    write_scalars(tmp_path / "summaries", "loss", [1.0])
    watched.loop.pass_time(2)
    checks = len(watched.checks)
    watched.loop.pass_time(3600)
    assert watched.reported == [SummariesFound()]
    assert len(watched.checks) == checks


def test_checks_continue_until_there_is_a_folder(tmp_path: Path) -> None:
    watched = WatchedRun("")
    watched.loop.pass_time(5)
    write_scalars(tmp_path, "loss", [1.0])
    watched.folder = str(tmp_path)
    watched.loop.pass_time(2)
    assert watched.reported == [SummariesFound()]


def test_checks_end_when_there_is_no_folder_to_check_any_more(tmp_path: Path) -> None:
    watched = WatchedRun(str(tmp_path))
    watched.folder = None
    watched.loop.pass_time(5)
    checks = len(watched.checks)
    watched.loop.pass_time(3600)
    assert watched.reported == []
    assert len(watched.checks) == checks
