"""``drumline rm``: remove runs that are over, with their files."""

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

_SUPERVISOR_EXIT_SECONDS = 20.0
_TRIES = 10


@click.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--volumes", is_flag=True, help="Also delete the volumes that were created for them in a cluster.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask before volumes are deleted.")
def command(ids: tuple[str, ...], *, volumes: bool, yes: bool) -> None:
    """Remove runs that are over: their logs, their journal and their own output folders.

    All ids are checked before anything is removed. Their folders on hosts are removed too. An `output` folder or a
    volume claim that the spec names is kept. If the folder of a run is a symbolic link, only the link is removed. A
    damaged run can be removed once none of its processes is alive.
    """
    home = home_of(os.environ)
    chosen = {folder.id: (folder, _check(folder)) for folder in [_folder(home, text) for text in ids]}
    if volumes:
        remove_volumes([details for _, details in chosen.values() if details], yes=yes)
    for folder, details in chosen.values():
        with waiting_notice(f"removing run {folder.id}..."):
            left = list(_kept_output(details, volumes=volumes)) if details else [_kept_of_damaged(folder)]
            for message in _remove_elsewhere(details) if details else ():
                print_line(message, err=True)
            _remove(home, folder, is_damaged=details is None)
        print_line(f"removed run {folder.id}")
        for message in left:
            print_line(message, err=True)


def _remove_elsewhere(details: RunDetails) -> Iterator[str]:
    """Remove the files of a run on other machines; yield messages about files that cannot be removed."""
    if not details.plan.is_elsewhere:
        return
    try:
        engine = engine_of(details)
        if isinstance(engine, RemovingFiles):
            engine.remove_files(output_of(details))
    except EngineError as error:
        first, *rest = error.message.split("\n")
        yield first
        yield from (f"  {line}" for line in rest)  # a part of the message may come from another machine


def _kept_output(details: RunDetails, *, volumes: bool) -> Iterator[str]:
    """Yield messages about the output of a run that `rm` keeps."""
    if not details.plan.is_elsewhere:
        yield from retained_output(output_of(details))
        return
    with suppress(EngineError):  # the engine is not installed any more, which `_remove_elsewhere` reports
        engine = engine_of(details)
        if isinstance(engine, Retaining) and not (volumes and isinstance(engine, Storing)):
            yield from engine.remains(output_of(details))


def _kept_of_damaged(folder: RunFolder) -> str:
    return f"run {folder.id} could not be read: its files on other machines, if any, are still there"


def _folder(home: Path, text: str) -> RunFolder:
    run = parse_whole_run(text, "only whole runs can be removed", "`drumline rm RUN` removes the whole run")
    folder = RunFolder(home / RUNS / run)
    if not is_there(folder):
        raise no_run(home, run)
    return folder


def _check(folder: RunFolder) -> RunDetails | None:
    """Read a run; return None if it is damaged, and raise InputError if it is not over."""
    try:
        details = run_details(folder, read_clock())
    except (DrumlineError, OSError):
        _require_no_process(folder)
        return None
    phase = details.run.summary.phase
    never_began = phase == Phase.CREATED and details.run.supervisor_gone
    if not details.run.summary.is_final and not never_began:
        raise InputError(f"run {folder.id} is not over: {phase}", hint=f"`drumline kill {folder.id}` stops it")
    return details


def _require_no_process(folder: RunFolder) -> None:
    """Raise InputError if a process of a damaged run is alive; each process holds a lock in the folder of the run."""
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
    """Remove the files of a run, its journal last, so that an interrupted removal can be repeated."""
    try:
        if folder.path.is_symlink() or not folder.path.is_dir():
            folder.path.unlink(missing_ok=True)
        else:
            with _locked(folder):
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
        raise InputError(f"run {folder.id} has been resumed: {phase}", hint=f"`drumline kill {folder.id}` stops it")


def _remove_files(folder: RunFolder) -> None:
    for entry in list(folder.path.iterdir()):
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
    for entry in list(folder.path.iterdir()):
        if entry != folder.lock_file:  # without it, another process could supervise the run
            entry.unlink(missing_ok=True)  # a process that looks up the code's revision renames a file
    _remove_folder(folder.path)


def _remove_folder(path: Path) -> None:
    """Remove a folder; repeat if another process writes into it meanwhile."""
    for left in reversed(range(_TRIES)):
        try:
            shutil.rmtree(path)
        except OSError as error:
            if not left or error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
                raise
        if not path.exists():
            return


@contextmanager
def _locked(folder: RunFolder) -> Iterator[None]:
    """Hold the lock of a run, so that no supervisor starts; first wait until its last supervisor has exited."""
    if os.path.lexists(folder.lock_file) and (folder.lock_file.is_symlink() or not folder.lock_file.is_file()):
        # Damage: no supervisor can hold it.
        yield
        return
    deadline = time.monotonic() + _SUPERVISOR_EXIT_SECONDS
    while (lock := take_lock(folder.lock_file)) is None:
        if time.monotonic() > deadline:
            raise EngineError(f"the supervisor of run {folder.id} does not exit", hint="try again in a moment")
    try:
        yield
    finally:
        os.close(lock)
