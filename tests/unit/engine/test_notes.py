"""Records about a replica on another machine are unchanged when they are read, and readable only by their owner."""

from __future__ import annotations

from pathlib import Path
from stat import S_IMODE

import pytest

from drumline.engine.notes import End, note, note_end, read_end, read_notes
from drumline.run.event import Exit
from drumline.run.traces import TRACE
from drumline.runtime.keeper import boot_id, now


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "attempts" / "0" / "worker.0"


def test_an_end_is_unchanged_after_it_was_written_and_read(folder: Path) -> None:
    end = End(Exit(code=3), 12.5, has_started=True)
    assert read_end(folder) is None
    note(folder, {"seen": 1})
    assert read_end(folder) is None
    note_end(folder, end)
    note_end(folder, end)
    assert read_end(folder) == end
    assert read_notes(folder)["seen"] == 1


def test_notes_are_readable_only_by_their_owner(folder: Path) -> None:
    note(folder, {})
    assert [S_IMODE(each.stat().st_mode) for each in (folder.parent.parent, folder.parent, folder)] == [0o700] * 3
    assert S_IMODE((folder / TRACE).stat().st_mode) == 0o600


def test_an_end_before_a_restart_of_the_machine_keeps_its_age(folder: Path) -> None:
    note_end(folder, End(Exit(code=0), now() - 100, has_started=False))
    text = (folder / TRACE).read_text()
    (folder / TRACE).write_text(text.replace(boot_id(), "another").replace('"at": ', '"at": 1'))
    found = read_end(folder)
    assert found
    assert 99 < now() - found.at_seconds < 160
    assert not found.has_started


@pytest.mark.parametrize("rest", ["", "{", "[]", "7", "{}", '{"over": true}', '{"over": true, "at": "x"}'])
def test_an_incomplete_record_is_not_an_end(folder: Path, rest: str) -> None:
    note(folder, {"seen": 1})
    with (folder / TRACE).open("a") as trace:
        trace.write(f"{rest}\n")
    assert read_end(folder) is None
    assert read_notes(folder)["seen"] == 1


def test_the_last_line_is_read_once_it_has_its_newline(folder: Path) -> None:
    note(folder, {"seen": 1})
    with (folder / TRACE).open("a") as trace:
        trace.write('{"seen": 2}')
        trace.flush()
        assert read_notes(folder) == {"seen": 1}
        trace.write("\n")
    assert read_notes(folder) == {"seen": 2}
