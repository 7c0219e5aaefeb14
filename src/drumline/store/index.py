"""The index: a row for every run, so that listing a thousand runs reads one file.

It is only a cache: a row is valid while the run's journal has not changed; a missing or outdated row is computed from
the run's folder and written again. If the index is deleted or damaged, or cannot be written, only time is lost.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from itertools import starmap
from pathlib import Path
from typing import TypeVar

from drumline.record import Record, field_names, to_dict

try:
    import sqlite3
except ImportError:  # some Pythons are built without it
    HAS_SQLITE = False
else:
    HAS_SQLITE = True

VERSION = 2
BUSY_TIMEOUT_SECONDS = 1.0  # for another process that writes

T = TypeVar("T")


class Summary(Record):
    """The row of a run, computed from its plan, its launch and its journal."""

    id: str
    number: int
    directory: str
    project: str
    name: str
    framework: str
    engine: str
    phase: str
    is_final: bool
    reason: str
    message: str
    created_at: float
    started_at: float | None
    started_since_boot: float | None
    started_boot: str | None
    finished_at: float | None
    duration_seconds: float | None
    attempt: int
    roles: str  # number of replicas of each role: `chief=1 worker=3`
    parameters: str  # JSON
    journal_bytes: int
    journal_changed_ns: int
    stalled: str = ""  # the StepsStalled event of a stalled run, as JSON
    stalled_at: float | None = None  # when a stalled run took its last step

    @property
    def stamp(self) -> tuple[int, int]:
        """Return the size and modification time of the journal from which the row was computed."""
        return self.journal_bytes, self.journal_changed_ns

    @property
    def replica_counts(self) -> dict[str, int]:
        """Return the number of replicas of each role."""
        return {role: int(number) for role, _, number in (part.partition("=") for part in self.roles.split())}


_COLUMNS = field_names(Summary)


class UnusableIndexError(Exception):
    """The index cannot be used now; the caller has to read the folders of the runs instead."""


class Index:
    """The rows of the index, in an open connection that the caller closes."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def ids(self) -> set[str]:
        """Return the ids of all runs that have a row."""
        return {run for (run,) in self._connection.execute("SELECT id FROM runs")}

    def rows(self, directory: str | None = None) -> Iterator[Summary]:
        """Yield all rows, or the rows of the project in `directory`; newest first."""
        where, values = ("", ()) if directory is None else ("WHERE directory = ?", (directory,))
        query = f"SELECT {', '.join(_COLUMNS)} FROM runs {where} ORDER BY number DESC, id DESC"
        return starmap(Summary, self._connection.execute(query, values))

    def put(self, summaries: Iterable[Summary]) -> None:
        """Write rows, and replace older rows of the same runs; without effect if the index is locked or read-only."""
        marks = ", ".join("?" * len(_COLUMNS))
        self._change(
            f"INSERT OR REPLACE INTO runs ({', '.join(_COLUMNS)}) VALUES ({marks})",
            (tuple(to_dict(each).values()) for each in summaries),
        )

    def forget(self, runs: Iterable[str]) -> None:
        """Remove the rows of these runs."""
        self._change("DELETE FROM runs WHERE id = ?", [(run,) for run in runs])

    def _change(self, statement: str, values: Iterable[tuple[object, ...]]) -> None:
        with suppress(sqlite3.OperationalError), self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(statement, values)


def use_index(home: Path, use: Callable[[Index], T]) -> T:
    """Call `use` with the index and return its result; if the index is damaged, call it again with an empty index.

    Raise UnusableIndexError if the index cannot be opened: in a read-only home, or while another process locks it.
    """
    if not HAS_SQLITE:
        raise UnusableIndexError("this Python has no sqlite3")
    path = index_file(home)
    for _ in range(2):
        try:
            with closing(_connect(path)) as connection:
                _prepare(connection)
                return use(Index(connection))
        except OSError as error:
            raise UnusableIndexError(str(error)) from error
        except sqlite3.Error as error:
            if not _is_damage(error):
                raise UnusableIndexError(str(error)) from error
            _discard(path)
    raise UnusableIndexError(f"{path} cannot be made anew")


def index_file(home: Path) -> str:
    """Return the path of the index, a file that may be deleted at any time."""
    return f"{home}/index.sqlite"


def stamp_of(journal: Path) -> tuple[int, int]:
    """Return the size and modification time of a journal, which identify its content, since it only grows."""
    try:
        status = os.stat(journal)  # noqa: PTH116
    except OSError:
        return 0, 0
    return status.st_size, status.st_mtime_ns


def spell_directory(directory: str) -> str:
    """Return the folder of a project with links resolved, as valid text."""
    return clean_text(os.path.realpath(directory)) if directory else ""


def clean_text(text: str) -> str:
    """Return a text with escapes for characters that cannot be encoded in UTF-8, as names of files may have."""
    return text.encode("utf-8", "backslashreplace").decode()


def _connect(path: str) -> sqlite3.Connection:
    # sqlite would create a file that all users can read, and would follow a link.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    return sqlite3.connect(path, timeout=BUSY_TIMEOUT_SECONDS, isolation_level=None)


def _prepare(connection: sqlite3.Connection) -> None:
    """Create an empty table, unless there is a table of this version."""
    connection.execute("PRAGMA synchronous = OFF")  # rows that a power loss removes are written again
    if _version(connection) == VERSION:
        return
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        if _version(connection) == VERSION:
            return
        connection.execute("DROP TABLE IF EXISTS runs")
        connection.execute(f"CREATE TABLE runs ({', '.join(_COLUMNS)}, PRIMARY KEY (id))")
        connection.execute("CREATE INDEX runs_of_project ON runs (directory, number)")
        connection.execute(f"PRAGMA user_version = {VERSION}")


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def _is_damage(error: sqlite3.Error) -> bool:
    """Return whether the file has to be created again; SQLITE_ERROR is raised for a table with other columns."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
    return code & 0xFF in (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _discard(path: str) -> None:
    for name in (f"{path}-journal", path):
        with suppress(OSError):
            os.unlink(name)  # noqa: PTH108
