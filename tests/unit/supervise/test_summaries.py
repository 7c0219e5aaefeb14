"""The scout: it looks seldom, more seldom with time, and no more once there is something."""

from __future__ import annotations

from pathlib import Path

from drumline.run.event import Event, SummariesFound
from drumline.supervise.summaries import SummaryDetector
from scaffold.loops import SimulatedTimeLoop
from scaffold.summaries import write_scalars


class WatchedRun:
    """A watcher with a clock of its own, and when it looked."""

    def __init__(self, folder: str | None) -> None:
        self.loop = SimulatedTimeLoop()
        self.folder = folder
        self.looks: list[float] = []
        self.told: list[Event] = []
        SummaryDetector(self.loop, self._asks, self.told.append).check()

    def _asks(self) -> str | None:
        self.looks.append(self.loop.time())
        return self.folder


def test_it_looks_every_other_second_and_later_twice_a_minute(tmp_path: Path) -> None:
    watched = WatchedRun(str(tmp_path))
    watched.loop.pass_time(21)
    assert len(watched.looks) == 11
    watched.loop.pass_time(3600)
    before = len(watched.looks)
    watched.loop.pass_time(3600)
    assert len(watched.looks) - before == 120
    assert watched.told == []


def test_it_tells_once_and_looks_no_more(tmp_path: Path) -> None:
    watched = WatchedRun(str(tmp_path))
    watched.loop.pass_time(5)
    write_scalars(tmp_path / "summaries", "loss", [1.0])
    watched.loop.pass_time(2)
    looks = len(watched.looks)
    watched.loop.pass_time(3600)
    assert watched.told == [SummariesFound()]
    assert len(watched.looks) == looks


def test_where_there_is_no_folder_yet_it_waits_for_one(tmp_path: Path) -> None:
    watched = WatchedRun("")
    watched.loop.pass_time(5)
    write_scalars(tmp_path, "loss", [1.0])
    watched.folder = str(tmp_path)
    watched.loop.pass_time(2)
    assert watched.told == [SummariesFound()]


def test_it_exits_when_no_request_comes_any_more(tmp_path: Path) -> None:
    watched = WatchedRun(str(tmp_path))
    watched.folder = None
    watched.loop.pass_time(5)
    looks = len(watched.looks)
    watched.loop.pass_time(3600)
    assert watched.told == []
    assert len(watched.looks) == looks
