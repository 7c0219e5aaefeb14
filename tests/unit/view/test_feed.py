"""The order of the items of a feed."""

from __future__ import annotations

from pathlib import Path

from drumline.run.event import AttemptPlaced, Event, ProjectCarried, ReplicaStarted, RunAccepted
from drumline.store.clock import Moment
from drumline.view.feed import Feed, Lines
from scaffold.past_runs import NOON, NOW, SECOND, TWO_WORKERS, WORKER, moments, write_run


def test_entries_of_the_journal_keep_their_order_even_if_a_host_reports_an_earlier_time(tmp_path: Path) -> None:
    accepted, started, *_ = moments()
    before = Moment(NOON + 9, started.since_boot - 1, started.boot)  # by the clock of the host
    history: list[tuple[Moment, Event]] = [
        (accepted, RunAccepted()),
        (accepted, AttemptPlaced(0, ("h1:20000", "h2:20001"))),
        (started, ProjectCarried(3, 4096, 2)),
        (before, ReplicaStarted(WORKER, 0)),
        (before, ReplicaStarted(SECOND, 0)),
    ]
    items = Feed(write_run(tmp_path, 4, history, spec=TWO_WORKERS)).poll(NOW.at)
    said = [item.data.decode().split(" (")[0] if isinstance(item, Lines) else str(item.phase) for item in items]
    assert said[-4:] == ["Syncing project", "RUNNING", "RUNNING", "RUNNING"]
    assert {item.at for item in items[-4:]} == {NOON + 10}
