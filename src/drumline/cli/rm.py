"""``drumline rm``: forget runs that are over, and their files."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import click

from drumline.cli.find import parse_whole_run
from drumline.cli.output import engine_of, output_of
from drumline.cli.terminal import print_line
from drumline.cli.volumes import remove_volumes
from drumline.cli.waiting import waiting_notice
from drumline.engine.abilities import RemovingFiles, Retaining, Storing
from drumline.engine.output import retained_output
from drumline.errors import DrumlineError, EngineError, InputError
from drumline.run.state import Phase
from drumline.run.traces import TRACE
from drumline.runtime.lock import is_locked, take_lock
from drumline.store.clock import read_clock
from drumline.store.folder import RunFolder, is_there, no_run
from drumline.store.home import RUNS, home_of
from drumline.store.index import UnusableIndexError, use_index
from drumline.store.writers import pid_of
from drumline.supervise.requests import read_state
from drumline.view.run import RunDetails, run_details

_PATIENCE_SECONDS = 20.0
_TRIES = 10


@click.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--volumes", is_flag=True, help="Also delete the volumes that were made for them in a cluster.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask before volumes are deleted.")
def command(ids: tuple[str, ...], *, volumes: bool, yes: bool) -> None:
    """Forget runs that are over: their logs, their journal, and what they wrote into folders of their own.

    All ids are looked up before anything is removed. On hosts their folders go too. An `output` folder or a claim that
    the spec names is left alone. Of a run whose folder is a symbolic link only the link is removed; a run whose files
    are damaged can be removed as soon as none of its processes is alive.
    """
    home = home_of(os.environ)
    doomed = {folder.id: (folder, _check(folder)) for folder in [_folder(home, text) for text in ids]}
    if volumes:
        remove_volumes([details for _, details in doomed.values() if details], yes=yes)
    for folder, details in doomed.values():
        with waiting_notice(f"removing run {folder.id}..."):
            left = list(_left(details, volumes=volumes)) if details else [_left_of_damaged(folder)]
            for words in _forget(details) if details else ():
                print_line(words, err=True)
            _remove(home, folder, is_damaged=details is None)
        print_line(f"removed run {folder.id}")
        for words in left:
            print_line(words, err=True)


def _forget(details: RunDetails) -> Iterator[str]:
    """Remove what a run has on other machines; yield what cannot be removed."""
    if not details.plan.is_elsewhere:
        return
    try:
        engine = engine_of(details)
        if isinstance(engine, RemovingFiles):
            engine.remove_files(output_of(details))
    except EngineError as error:
        first, *rest = error.message.split("\n")
        yield first
        yield from (f"  {line}" for line in rest)  # another machine may have written some of it


def _left(details: RunDetails, *, volumes: bool) -> Iterator[str]:
    """Yield what of a run stays where it is."""
    if not details.plan.is_elsewhere:
        yield from retained_output(output_of(details))
        return
    with suppress(EngineError):  # the engine is not installed any more, which `_forget` says
        engine = engine_of(details)
        if isinstance(engine, Retaining) and not (volumes and isinstance(engine, Storing)):
            yield from engine.remains(output_of(details))


def _left_of_damaged(folder: RunFolder) -> str:
    return f"run {folder.id} could not be read: what it left on other machines, if anything, is still there"


def _folder(home: Path, text: str) -> RunFolder:
    run = parse_whole_run(text, "only whole runs can be removed", "`drumline rm RUN` removes all of it")
    folder = RunFolder(home / RUNS / run)
    if not is_there(folder):
        raise no_run(home, run)
    return folder


def _check(folder: RunFolder) -> RunDetails | None:
    """Read a run; return None if it is damaged, and raise InputError if it is not over."""
    try:
        details = run_details(folder, read_clock())
    except (DrumlineError, OSError):
        _require_dead(folder)
        return None
    phase = details.run.summary.phase
    never_began = phase == Phase.CREATED and details.run.supervisor_gone
    if not details.run.summary.is_final and not never_began:
        raise InputError(f"run {folder.id} is not over: {phase}", hint=f"`drumline kill {folder.id}` ends it")
    return details


def _require_dead(folder: RunFolder) -> None:
    """Raise InputError if a process of a damaged run is alive; each holds a lock in the run's folder."""
    for lock in (folder.lock_file, *folder.path.glob(f"attempts/*/*/{TRACE}")):
        with suppress(OSError):
            if is_locked(lock):
                pid = _supervisor_pid(lock) if lock == folder.lock_file else pid_of(lock.parent)
                what = "its supervisor" if lock == folder.lock_file else lock.parent.name
                raise InputError(
                    f"run {folder.id} is damaged, but {what} is alive",
                    hint=f"`kill {pid}` ends it" if pid else f"end the process that holds {lock}",
                )


def _supervisor_pid(lock: Path) -> int | None:
    text = lock.read_bytes()[:20].strip()
    return int(text) if text.isdigit() else None


def _remove(home: Path, folder: RunFolder, *, is_damaged: bool) -> None:
    """Remove a run's files; what says that it is over goes last, so that an interrupted removal can be repeated."""
    try:
        if folder.path.is_symlink() or not folder.path.is_dir():
            folder.path.unlink(missing_ok=True)
        else:
            with _held(folder):
                if not is_damaged:
                    _require_over(folder)
                _remove_files(folder)
    except OSError as error:
        raise EngineError(f"cannot remove {error.filename or folder.path}: {error.strerror}") from None
    with suppress(UnusableIndexError):
        use_index(home, lambda index: index.forget([folder.id]))


def _require_over(folder: RunFolder) -> None:
    phase = read_state(folder).phase
    if not phase.is_final and phase is not Phase.CREATED:
        raise InputError(f"run {folder.id} has been resumed: {phase}", hint=f"`drumline kill {folder.id}` ends it")


def _remove_files(folder: RunFolder) -> None:
    for entry in list(folder.path.iterdir()):
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
    for entry in list(folder.path.iterdir()):
        if entry != folder.lock_file:  # without it another process could take the run up
            entry.unlink(missing_ok=True)  # a process that looks up the code's revision renames a file
    _remove_folder(folder.path)


def _remove_folder(path: Path) -> None:
    """Remove a folder into which a process that wanted the run may still write, until it sees that the run is gone."""
    for left in reversed(range(_TRIES)):
        try:
            shutil.rmtree(path)
        except OSError as error:
            if not left or error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
                raise
        if not path.exists():
            return


@contextmanager
def _held(folder: RunFolder) -> Iterator[None]:
    """Hold the run's lock, so that no supervisor takes it up; its last one may need a moment to leave."""
    if os.path.lexists(folder.lock_file) and (folder.lock_file.is_symlink() or not folder.lock_file.is_file()):
        # Damage: no supervisor can hold it.
        yield
        return
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while (lock := take_lock(folder.lock_file)) is None:
        if time.monotonic() > deadline:
            raise EngineError(f"the supervisor of run {folder.id} does not leave", hint="try again in a moment")
    try:
        yield
    finally:
        os.close(lock)
