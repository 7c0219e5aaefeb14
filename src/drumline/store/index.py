"""The index: a row for every run, so that listing a thousand of them reads one file.

Only a cache. A row holds as long as its run's journal is the one that it was made of; whoever finds it missing or
outdated reads the run's folder and puts it right. So the index may be deleted, damaged or never written, and
nothing but time is lost.
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
PATIENCE_SECONDS = 1.0  # for whoever else writes at this moment

T = TypeVar("T")


class Summary(Record):
    """A run in one row: what follows from its plan, its launch and its journal alone."""

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
    roles: str  # how many replicas each has: `chief=1 worker=3`
    parameters: str  # JSON
    journal_bytes: int
    journal_changed_ns: int
    stalled: str = ""  # the event of a run that takes no steps, as JSON
    stalled_at: float | None = None  # when it took the last one

    @property
    def stamp(self) -> tuple[int, int]:
        """The journal that it was made of."""
        return self.journal_bytes, self.journal_changed_ns

    @property
    def replica_counts(self) -> dict[str, int]:
        """How many replicas each role has."""
        return {role: int(number) for role, _, number in (part.partition("=") for part in self.roles.split())}


_COLUMNS = field_names(Summary)


class UnusableIndexError(Exception):
    """The index cannot be used now; the folders can."""


class Index:
    """The rows; holds a connection that somebody else opens and closes."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def ids(self) -> set[str]:
        """Every run that has a row."""
        return {run for (run,) in self._connection.execute("SELECT id FROM runs")}

    def rows(self, directory: str | None = None) -> Iterator[Summary]:
        """Every row, or those of one project; the newest first."""
        where, values = ("", ()) if directory is None else ("WHERE directory = ?", (directory,))
        query = f"SELECT {', '.join(_COLUMNS)} FROM runs {where} ORDER BY number DESC, id DESC"
        return starmap(Summary, self._connection.execute(query, values))

    def put(self, summaries: Iterable[Summary]) -> None:
        """Write rows, over older ones; what cannot be written now is left to the next who needs it."""
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
    """Call this with the index, once more with an empty one if it turns out to be damaged.

    Raise UnusableIndexError where there can be none: a home that is read-only, a file that somebody else has locked.
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
    """Where the index is; a file that may be deleted at any time."""
    return f"{home}/index.sqlite"


def stamp_of(journal: Path) -> tuple[int, int]:
    """Which journal this is: it only ever grows, so that its length and time name what is in it."""
    try:
        status = os.stat(journal)  # noqa: PTH116
    except OSError:
        return 0, 0
    return status.st_size, status.st_mtime_ns


def spell_directory(directory: str) -> str:
    """A project's folder in one spelling: links resolved, in characters that can be written anywhere."""
    return clean_text(os.path.realpath(directory)) if directory else ""


def clean_text(text: str) -> str:
    """The same in characters that can be written anywhere; a file's name may have others."""
    return text.encode("utf-8", "backslashreplace").decode()


def _connect(path: str) -> sqlite3.Connection:
    # sqlite would make it readable for all users, and would follow a link.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    return sqlite3.connect(path, timeout=PATIENCE_SECONDS, isolation_level=None)


def _prepare(connection: sqlite3.Connection) -> None:
    """Begin with an empty table where there is none of this version."""
    connection.execute("PRAGMA synchronous = OFF")  # what a power loss takes away is made again
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
    """Whether a new file would be better; SQLITE_ERROR is a table that is not ours."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
    return code & 0xFF in (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _discard(path: str) -> None:
    for name in (f"{path}-journal", path):
        with suppress(OSError):
            os.unlink(name)  # noqa: PTH108
