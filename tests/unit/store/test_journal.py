"""Fields and events of newer versions in a journal are skipped."""

from __future__ import annotations

import json
from pathlib import Path

from drumline.run.event import ReplicaExited, TimerFired
from drumline.store.journal import read_journal
from scaffold.past_runs import finished, write_run


def test_a_field_that_a_newer_version_added_to_an_event_is_left_out(tmp_path: Path) -> None:
    run = write_run(tmp_path, 4, finished())
    journal = run.journal_file
    before = [entry.event for entry in read_journal(journal, run.plan())]
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    for line in lines:
        line["added"] = {"in": ["a", "newer", "version"]}
        if "exit" in line:
            line["exit"]["added"] = 1
    journal.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert [entry.event for entry in read_journal(journal, run.plan())] == before
    assert any(isinstance(event, ReplicaExited) for event in before)


def test_an_event_that_a_newer_version_added_is_not_read(tmp_path: Path) -> None:
    run = write_run(tmp_path, 4, [(finished()[0][0], TimerFired("run", 0))])
    journal = run.journal_file
    line = json.loads(journal.read_text())
    with journal.open("a") as file:
        file.write(json.dumps({**line, "event": "ReplicaFlew"}) + "\n")
    assert [entry.event for entry in read_journal(journal, run.plan())] == [TimerFired("run", 0)]
