"""Migrate stores of older versions: add decisions to each journal, once.

The journal of a run with a supervisor of an older version is migrated after that supervisor has exited. Until then
readers upgrade its entries.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from drumline.errors import DrumlineError, EngineError
from drumline.plan.codec import plan_to_json
from drumline.runtime.private import open_file, open_regular, write_file
from drumline.store.folder import RunFolder
from drumline.store.home import RUNS, run_ids, write_version
from drumline.store.journal import VERSION, entry_line, parse_line, upgraded
from drumline.store.upgrade import Upgrade

_FIRST_BYTES = 16
_OLDER = tuple(b'{"v": %d,' % version for version in range(1, VERSION))


def migrate_home(home: Path) -> None:
    """Migrate every run of a home; when all runs are migrated, record the version of the store.

    Runs that have a supervisor, or cannot be read or written now, are migrated by a later command.
    """
    try:
        folders = [RunFolder(home / RUNS / run) for run in run_ids(home)]
    except EngineError:
        return  # the command will report the error
    is_done = [_migrated(folder) for folder in folders]
    if all(is_done):
        with suppress(OSError):
            write_version(home)


def migrate_run(folder: RunFolder) -> None:
    """Migrate one run; the caller holds its lock; idempotent.

    Each file is replaced as a whole. The plan is replaced first: an older version cannot read it, and reports that.
    """
    journal = folder.journal_file
    if not _is_older(journal):
        return
    plan = folder.plan()
    write_file(folder.plan_file, plan_to_json(plan).encode("utf-8", "backslashreplace"), durable=True)
    upgrade = Upgrade(plan)
    with open(journal, "rb", opener=open_regular) as stream:
        data = stream.read()
    lines = data[: data.rfind(b"\n") + 1].splitlines(keepends=True)
    write_file(journal, b"".join(_upgraded(upgrade, line) for line in lines), durable=True)


def _migrated(folder: RunFolder) -> bool:
    """Migrate a run unless its lock is held; return whether it is migrated, or can never be."""
    try:
        if not _is_older(folder.journal_file):
            return True
        with _held(folder.lock_file) as is_free:
            if is_free:
                migrate_run(folder)
            return is_free
    except DrumlineError:
        return True  # the plan is damaged, or could have been changed by another user
    except OSError:
        return False


def _is_older(journal: Path) -> bool:
    try:
        with open(journal, "rb", opener=open_regular) as stream:
            return stream.read(_FIRST_BYTES).startswith(_OLDER)
    except FileNotFoundError:
        return False


def _upgraded(upgrade: Upgrade, line: bytes) -> bytes:
    version, entry = parse_line(line)
    return entry_line(upgraded(upgrade, version, entry)) if entry else line


@contextmanager
def _held(lock: Path) -> Iterator[bool]:
    """Hold a run's lock, so that no supervisor can start; yield False if another process holds it."""
    descriptor = open_file(lock, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(descriptor)
