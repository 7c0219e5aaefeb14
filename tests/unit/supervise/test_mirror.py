"""The copy of a run with a remote supervisor: it is complete, in order, and has no other files."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from drumline.errors import EngineError
from drumline.plan.types import ReplicaId
from drumline.run.event import ReplicaExited
from drumline.store.folder import RunFolder, create_folder
from drumline.store.journal import read_journal
from drumline.supervise.message import Answer, Piece, read_answer, write_head
from drumline.supervise.mirror import Mirror
from drumline.supervise.remote import answer
from drumline.supervise.requests import read_state
from scaffold.past_runs import finished, write_run

TRACES = "attempts/0/worker.0"


class Copied:
    """The folder `there` of a run, and its copy `here`."""

    def __init__(self, folder: Path) -> None:
        self.there = write_run(folder / "there", 4, finished())
        self.here = RunFolder(create_folder(folder / "here").path.rename(folder / "here" / "runs" / "4"))
        for name in ("plan.json", "launch.json"):
            if (self.there.path / name).exists():
                (self.here.path / name).write_bytes((self.there.path / name).read_bytes())
        self.asked: list[Piece] = []
        self.fails: Callable[[Piece], bool] = lambda _: False
        self.mirror = Mirror(self.here, self.there.plan(), self.ask)

    async def ask(self, pieces: Sequence[Piece]) -> Answer:
        self.asked += pieces
        if any(map(self.fails, pieces)):
            raise EngineError("it is away")
        wanted = [(piece.name, piece.offset, piece.limit) for piece in pieces]
        return read_answer("4", answer(self.there, write_head(do="read", pieces=wanted)), pieces)

    def update(self) -> Answer:
        return asyncio.run(self.mirror.update())

    def write(self, name: str, data: bytes) -> None:
        path = self.there.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def read(self, name: str) -> bytes:
        return (self.here.path / name).read_bytes()


@pytest.fixture
def copied(tmp_path: Path) -> Copied:
    return Copied(tmp_path)


def test_the_journal_the_logs_and_the_other_files_of_views_are_copied(copied: Copied) -> None:
    files = {f"{TRACES}/{name}": name.encode() * 7 for name in ("log", "marks", "steps", "report", "error", "metrics")}
    for name, data in {**files, "attempts/0/places": b"{}", "unreached": b"[]"}.items():
        copied.write(name, data)
    copied.update()
    assert {name: copied.read(name) for name in files} == files
    assert (copied.read("attempts/0/places"), copied.read("unreached")) == (b"{}", b"[]")
    assert copied.read("events.jsonl") == copied.there.journal_file.read_bytes()
    assert copied.mirror.is_current
    assert read_state(copied.here) == read_state(copied.there)


def test_only_the_new_bytes_of_a_log_are_requested(copied: Copied) -> None:
    copied.write(f"{TRACES}/log", b"a" * 100_000)
    copied.update()
    copied.asked.clear()
    copied.write(f"{TRACES}/log", b"a" * 100_000 + b"more\n")
    copied.update()
    (log,) = [piece for piece in copied.asked if piece.name == f"{TRACES}/log"]
    assert log.offset >= 99_000
    assert copied.read(f"{TRACES}/log").endswith(b"amore\n")
    assert len(copied.read(f"{TRACES}/log")) == 100_005


def test_a_log_that_is_longer_than_an_answer_is_copied_to_its_end(copied: Copied) -> None:
    data = bytes(range(256)) * (1 << 16)
    copied.write(f"{TRACES}/log", data)
    copied.update()
    assert copied.read(f"{TRACES}/log") == data


def test_the_journal_is_not_written_if_a_log_cannot_be_copied(copied: Copied) -> None:
    copied.write(f"{TRACES}/log", b"the last words\n")
    copied.fails = lambda piece: piece.name.endswith("/log")
    with pytest.raises(EngineError):
        copied.update()
    assert not copied.here.journal_file.exists()
    copied.fails = lambda _: False
    copied.update()
    assert read_state(copied.here).phase.is_final


def test_an_incomplete_line_of_the_journal_is_copied_when_it_is_complete(copied: Copied) -> None:
    journal = copied.there.journal_file
    whole = journal.read_bytes()
    journal.write_bytes(whole[:-10])
    copied.update()
    assert copied.read("events.jsonl") == whole[: whole.rindex(b"\n", 0, -1) + 1]
    journal.write_bytes(whole)
    copied.update()
    assert copied.read("events.jsonl") == whole


def test_a_journal_that_was_migrated_on_the_other_machine_is_copied_again(copied: Copied) -> None:
    copied.update()
    journal = copied.there.journal_file
    lines = [{**json.loads(line), "added": "by a migration"} for line in journal.read_text().splitlines()]
    journal.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    copied.update()
    assert copied.read("events.jsonl") == journal.read_bytes()


def test_a_log_that_was_replaced_does_not_change_its_copy(copied: Copied) -> None:
    copied.write(f"{TRACES}/log", b"what it said\n")
    copied.update()
    copied.write(f"{TRACES}/log", b"something else, and longer\n")
    copied.update()
    assert copied.read(f"{TRACES}/log") == b"what it said\n"


def test_only_replicas_of_the_plan_have_files(copied: Copied) -> None:
    journal = copied.there.journal_file
    started = next(line for line in journal.read_bytes().splitlines() if b'"worker.0"' in line)
    strange = [b"worker.7", b"../../../evil", b"/etc", b"chief.0", b"worker.0/../../x", b"x\\u0000y"]
    lines = [started.replace(b"worker.0", name) for name in strange]
    lines += [started.replace(b'"attempt": 0', b'"attempt": -1'), started.replace(b'"attempt": 0', b'"attempt": 1e99')]
    journal.write_bytes(b"\n".join([*lines, b"garbage \x1b[31m", b"[" * 100_000, b"\xff", b""]) + journal.read_bytes())
    copied.update()
    names = {piece.name.rpartition("/")[0] for piece in copied.asked}
    assert names <= {"", "attempts/0", "attempts/0/worker.0", "attempts/0/worker.1"}, names
    assert [*copied.here.path.parent.parent.parent.rglob("*evil*")] == []
    events = [entry.event for entry in read_journal(copied.here.journal_file, copied.here.plan())]
    known = {ReplicaId("worker", 0), ReplicaId("worker", 1)}
    assert {event.replica for event in events if isinstance(event, ReplicaExited)} <= known


def test_a_journal_or_a_line_without_end_is_refused(copied: Copied) -> None:
    with copied.there.journal_file.open("wb") as journal:
        journal.truncate(1 << 29)
    with pytest.raises(EngineError, match="too much"):
        copied.update()
    copied.there.journal_file.write_bytes(b"x" * (1 << 23))
    with pytest.raises(EngineError, match="does not end"):
        copied.update()
    assert not copied.here.journal_file.exists()


def test_a_file_that_is_larger_than_any_of_its_kind_is_left_out(copied: Copied) -> None:
    copied.write(f"{TRACES}/report", b"{" * (1 << 20))
    copied.update()
    assert not (copied.here.path / TRACES / "report").exists()
