"""The index is a cache: damage to it costs time and loses nothing."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pytest

from drumline.store.index import VERSION, Index, Summary, UnusableIndexError, index_file, stamp_of, use_index
from scaffold.past_runs import summary_of


def put(home: Path, *rows: Summary) -> None:
    use_index(home, lambda index: index.put(rows))


def rows(home: Path, directory: str | None = None) -> list[Summary]:
    return use_index(home, lambda index: list(index.rows(directory)))


def ids(home: Path) -> set[str]:
    return use_index(home, Index.ids)


def test_a_row_reads_back_as_it_was_put(tmp_path: Path) -> None:
    row = summary_of(4, started_at=None, duration_seconds=None, message="é\n", parameters='{"lr": "0.1"}')
    put(tmp_path, row)
    assert rows(tmp_path) == [row]


def test_a_row_replaces_an_older_one(tmp_path: Path) -> None:
    put(tmp_path, summary_of(4, phase="RUNNING", is_final=False))
    put(tmp_path, summary_of(4))
    assert rows(tmp_path) == [summary_of(4)]


def test_rows_are_sorted_by_number_newest_first(tmp_path: Path) -> None:
    put(tmp_path, *(summary_of(number) for number in (9, 100, 10)))
    assert [row.id for row in rows(tmp_path)] == ["100", "10", "9"]


def test_only_the_rows_of_one_project_are_read(tmp_path: Path) -> None:
    put(tmp_path, summary_of(1, directory="/a"), summary_of(2, directory="/b"), summary_of(3, directory="/a"))
    assert [row.id for row in rows(tmp_path, "/a")] == ["3", "1"]


def test_a_removed_run_has_no_row(tmp_path: Path) -> None:
    put(tmp_path, summary_of(1), summary_of(2))
    use_index(tmp_path, lambda index: index.forget(["1", "7"]))
    assert ids(tmp_path) == {"2"}


def test_the_index_is_private_to_its_user(tmp_path: Path) -> None:
    put(tmp_path, summary_of(1))
    assert Path(index_file(tmp_path)).stat().st_mode & 0o777 == 0o600


def write_bytes(data: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(data)


def cut_in_half(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def damage_every_page_but_the_first(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:4096] + b"\xa5" * (len(data) - 4096))


def change(*statements: str) -> Callable[[Path], object]:
    def apply(path: Path) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            for statement in statements:
                connection.execute(statement)

    return apply


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(os.unlink, id="deleted"),
        pytest.param(write_bytes(b""), id="empty"),
        pytest.param(write_bytes(b"\0" * 9000), id="zeros"),
        pytest.param(write_bytes(b"not a database at all, " * 500), id="text"),
        pytest.param(cut_in_half, id="cut in half"),
        pytest.param(damage_every_page_but_the_first, id="spoilt"),
        pytest.param(change(f"PRAGMA user_version = {VERSION + 1}"), id="of another version"),
        pytest.param(change("DROP TABLE runs"), id="without its table"),
        pytest.param(change("DROP TABLE runs", "CREATE TABLE runs (id, colour)"), id="with another table"),
    ],
)
def test_a_damaged_index_is_created_again(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    put(tmp_path, *(summary_of(number, message="x" * 500) for number in range(1, 40)))
    damage(Path(index_file(tmp_path)))

    def refill(index: Index) -> list[str]:
        known = index.ids()
        list(index.rows())
        index.put([] if "7" in known else [summary_of(7)])
        return [row.id for row in index.rows() if row.id == "7"]

    assert use_index(tmp_path, refill) == ["7"]
    assert ids(tmp_path) == {"7"}


def test_another_object_in_place_of_the_index_is_not_changed(tmp_path: Path) -> None:
    folder = Path(index_file(tmp_path))
    folder.mkdir()
    with pytest.raises(UnusableIndexError):
        put(tmp_path, summary_of(1))
    assert folder.is_dir()


def test_without_a_home_no_index_is_created(tmp_path: Path) -> None:
    with pytest.raises(UnusableIndexError):
        put(tmp_path / "nowhere", summary_of(1))
    assert not (tmp_path / "nowhere").exists()


def test_a_locked_index_is_neither_waited_for_nor_damaged(tmp_path: Path) -> None:
    put(tmp_path, summary_of(1))
    with closing(sqlite3.connect(index_file(tmp_path), isolation_level=None)) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        with pytest.raises(UnusableIndexError):
            rows(tmp_path)
    assert ids(tmp_path) == {"1"}


def test_a_row_that_cannot_be_written_is_dropped_and_the_others_are_read(tmp_path: Path) -> None:
    put(tmp_path, summary_of(1))
    with closing(sqlite3.connect(index_file(tmp_path), isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")

        def read_and_write(index: Index) -> set[str]:
            index.put([summary_of(2)])
            return index.ids()

        assert use_index(tmp_path, read_and_write) == {"1"}


def test_many_threads_can_write_to_a_new_index_at_once(tmp_path: Path) -> None:
    def put_until_written(number: int) -> None:
        written = False
        while not written:  # on a busy machine a row may need another try
            with suppress(UnusableIndexError):
                put(tmp_path, summary_of(number))
                written = str(number) in ids(tmp_path)

    with ThreadPoolExecutor(max_workers=8) as pool:
        list(pool.map(put_until_written, range(1, 41)))
    assert ids(tmp_path) == {str(number) for number in range(1, 41)}


def test_an_error_of_the_caller_is_not_reported_as_an_unusable_index(tmp_path: Path) -> None:
    put(tmp_path, summary_of(1))

    def fail(_: Index) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        use_index(tmp_path, fail)
    assert ids(tmp_path) == {"1"}


def test_the_stamp_changes_with_the_journal(tmp_path: Path) -> None:
    journal = tmp_path / "events.jsonl"
    absent = stamp_of(journal)
    journal.write_text("one\n")
    first = stamp_of(journal)
    with journal.open("a") as stream:
        stream.write("two\n")
    assert len({absent, first, stamp_of(journal)}) == 3
