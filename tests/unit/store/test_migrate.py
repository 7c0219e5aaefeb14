"""Stores of older versions are migrated once, also by concurrent commands; stores of newer versions are refused."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

import pytest

from drumline.cli import run as drumline
from drumline.errors import InputError
from drumline.run.fold import fold, new_run
from drumline.run.state import Phase
from drumline.store.access import open_home
from drumline.store.folder import RunFolder
from drumline.store.home import STORE_VERSION, VERSION_FILE
from drumline.store.journal import Journal, JournalReader, read_journal
from drumline.store.migrate import migrate_home, migrate_run
from drumline.view.feed import Feed
from scaffold.past_runs import finished, write_run
from stores.shown import runs_of, unpack

FAILED, RESTARTED = "2", "3"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """Return a home that version 1 has written."""
    home = tmp_path / "home"
    unpack("1", home)
    return home


def contents(home: Path) -> dict[str, bytes]:
    """Return every file of a home."""
    return {str(path.relative_to(home)): path.read_bytes() for path in home.rglob("*") if path.is_file()}


def run_of(home: Path, run: str) -> RunFolder:
    return RunFolder(home / "runs" / run)


def versions(folder: RunFolder) -> set[int]:
    return {json.loads(line)["v"] for line in folder.journal_file.read_text().splitlines()}


@contextmanager
def held(folder: RunFolder) -> Iterator[None]:
    """Hold a run's lock, as its supervisor does."""
    descriptor = os.open(folder.lock_file, os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)


def test_a_store_is_migrated_when_it_is_opened_and_only_once(old: Path) -> None:
    assert open_home({"DRUMLINE_HOME": str(old)}) == old
    assert [versions(run_of(old, run)) for run in runs_of(old)] == [{2}] * len(runs_of(old))
    assert (old / VERSION_FILE).read_text().split()[0] == "2"
    once = contents(old)
    open_home({"DRUMLINE_HOME": str(old)})
    migrate_home(old)
    assert contents(old) == once


def test_every_migrated_journal_has_decisions(old: Path) -> None:
    migrate_home(old)
    for run in runs_of(old):
        entries = [json.loads(line) for line in run_of(old, run).journal_file.read_text().splitlines()]
        decided = [decision["event"] for entry in entries for decision in entry.get("decisions", ())]
        assert ("RunEnded" in decided) == (run != "18"), run  # run 18 has not ended
    assert "RestartChosen" in run_of(old, RESTARTED).journal_file.read_text()
    assert "RevivalChosen" in run_of(old, "11").journal_file.read_text()


def test_a_line_that_cannot_be_read_is_kept_and_an_incomplete_last_line_is_dropped(old: Path) -> None:
    journal = run_of(old, FAILED).journal_file
    first, rest = journal.read_bytes().split(b"\n", 1)
    journal.write_bytes(b"\n".join((first, b'{"v": 1, "event": "ReplicaFlew"}', rest)) + b'{"v": 1, "at"')
    migrate_home(old)
    lines = journal.read_bytes().splitlines()
    assert lines[1] == b'{"v": 1, "event": "ReplicaFlew"}'
    assert lines[-1].endswith(b"}")
    assert read_journal(journal, run_of(old, FAILED).plan())[-1].decisions


def test_concurrent_migrations_have_the_same_result_as_one(old: Path, tmp_path: Path) -> None:
    unpack("1", tmp_path / "alone")
    migrate_home(tmp_path / "alone")
    context = get_context("fork")
    commands = [context.Process(target=migrate_home, args=(old,)) for _ in range(4)]
    for command in commands:
        command.start()
    for command in commands:
        command.join()
    migrate_home(old)  # each of them may have found a run that another one was migrating
    assert contents(old) == contents(tmp_path / "alone")


@pytest.mark.parametrize("name", ["plan.json", "events.jsonl"])
def test_an_incomplete_migration_is_repeated(old: Path, name: str, tmp_path: Path) -> None:
    unpack("1", tmp_path / "alone")
    migrate_home(tmp_path / "alone")
    folder = run_of(old, FAILED)
    before = (folder.path / name).read_bytes()
    obstacle = folder.path / f".{name}.new"
    obstacle.mkdir()
    migrate_home(old)
    assert not (old / VERSION_FILE).exists()
    assert (folder.path / name).read_bytes() == before
    assert read_journal(folder.journal_file, folder.plan())[-1].decisions
    obstacle.rmdir()
    migrate_home(old)
    assert contents(old) == contents(tmp_path / "alone")


def test_a_run_with_a_supervisor_is_read_without_migration_and_migrated_after_it_has_exited(old: Path) -> None:
    folder = run_of(old, FAILED)
    *begun, last = folder.journal_file.read_bytes().splitlines(keepends=True)
    folder.journal_file.write_bytes(b"".join(begun))
    with held(folder):
        open_home({"DRUMLINE_HOME": str(old)})
        assert folder.journal_file.read_bytes() == b"".join(begun)
        assert not (old / VERSION_FILE).exists()
        feed = Feed(folder)
        feed.poll(0.0)
        assert feed.final_cause
        assert feed.state.phase is Phase.RUNNING
        with folder.journal_file.open("ab") as journal:  # as the older supervisor does
            journal.write(last)
        shown = [getattr(item, "phase", None) for item in feed.poll(0.0)]
        assert shown.count(Phase.FAILED) == 1
    open_home({"DRUMLINE_HOME": str(old)})
    assert versions(folder) == {2}
    assert (old / VERSION_FILE).exists()
    assert feed.poll(0.0) == []  # the entries of a journal that was replaced are not returned again
    assert feed.is_over


def test_a_reader_returns_each_entry_once_if_the_journal_is_migrated_meanwhile(old: Path) -> None:
    folder = run_of(old, RESTARTED)
    lines = folder.journal_file.read_bytes().splitlines(keepends=True)
    expected = read_journal(folder.journal_file, folder.plan())
    for cut in range(len(lines) + 1):
        folder.journal_file.write_bytes(b"".join(lines[:cut]))
        reader = JournalReader(folder.journal_file, folder.plan())
        told = reader.read()
        with folder.journal_file.open("ab") as journal:  # in place, as a supervisor does
            journal.write(b"".join(lines[cut:]))
        migrate_run(folder)
        assert told + reader.read() == expected


def test_a_migrated_run_that_had_not_ended_is_still_running(old: Path) -> None:
    folder = run_of(old, "18")
    migrate_run(folder)
    plan = folder.plan()
    state = new_run(plan)
    for entry in read_journal(folder.journal_file, plan):
        state = fold(state, entry.event, *entry.decisions)
    assert state.phase is Phase.RUNNING
    assert "GangStarted" in folder.journal_file.read_text()


def test_a_journal_that_is_cut_anywhere_has_each_event_with_its_decisions(old: Path, tmp_path: Path) -> None:
    migrate_home(old)
    plan, whole = run_of(old, FAILED).plan(), run_of(old, FAILED).journal_file.read_bytes()
    entries = read_journal(run_of(old, FAILED).journal_file, plan)
    path = tmp_path / "events.jsonl"
    for cut in (*range(0, len(whole), 17), len(whole)):
        path.write_bytes(whole[:cut])
        read = read_journal(path, plan)
        assert read == entries[: len(read)]
    Journal(path, boot="b", wall=lambda: 0.0, since_boot=lambda: 0.0).close()
    assert read_journal(path, plan) == entries


def test_a_store_of_a_newer_version_is_refused_and_its_runs_can_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = write_run(tmp_path / "home", 4, finished())
    newer = folder.journal_file.read_text().replace('"v": 2', '"v": 3')
    folder.journal_file.write_text(newer)
    (tmp_path / "home" / VERSION_FILE).write_text(f"{STORE_VERSION + 1} 7.1.0\n")
    monkeypatch.setenv("DRUMLINE_HOME", str(tmp_path / "home"))
    for words in (["status"], ["status", "4"], ["logs", "4"], ["events", "4"], ["kill", "4"], ["resume", "4"]):
        assert drumline(words) == InputError.exit_code
        said = capfd.readouterr()
        assert said.out == ""
        assert "written by drumline 7.1.0 with version 3 of the store" in said.err
        assert "install drumline 7.1.0 or newer" in said.err
    assert folder.journal_file.read_text() == newer
    assert drumline(["rm", "4"]) == 0
    assert not folder.path.exists()


@pytest.mark.parametrize("text", ["", "two", "\0" * 50])
def test_an_unreadable_version_file_is_an_error_with_a_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    monkeypatch.setenv("DRUMLINE_HOME", str(tmp_path))
    write_run(tmp_path, 4, finished())
    file = tmp_path / VERSION_FILE
    file.write_text(text)
    assert drumline(["status", "-a"]) == 3
    assert capsys.readouterr() == (
        "",
        (
            f"error: the version of the store cannot be read from {file}: it holds no version\n"
            f"hint: `rm {file}`: the next command writes it again\n"
        ),
    )
    file.unlink()
    assert drumline(["status", "-a"]) == 0
    assert file.read_text().startswith(f"{STORE_VERSION}")
