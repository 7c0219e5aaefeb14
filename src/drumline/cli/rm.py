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

from drumline.cli.patience import told_after_a_moment
from drumline.errors import EngineError, InputError
from drumline.run.id import parse_target
from drumline.run.state import Phase
from drumline.runtime.lock import take_lock
from drumline.store.clock import read_clock
from drumline.store.folder import RunFolder, find_folder
from drumline.store.home import home_of
from drumline.store.index import UnusableIndexError, use_index
from drumline.supervise.reach import read_state
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
    the spec names is left alone.
    """
    home = home_of(os.environ)
    doomed = {folder.id: (folder, _check(folder)) for folder in [_folder(home, text) for text in ids]}
    if volumes:
        from drumline.cli.volumes import remove_volumes  # noqa: PLC0415 - a cluster's client, which few need

        remove_volumes([details for _, details in doomed.values()], yes=yes)
    for folder, details in doomed.values():
        with told_after_a_moment(f"removing run {folder.id}..."):
            if details.plan.hosts:
                from drumline.cli.volumes import remove_on_hosts  # noqa: PLC0415 - a client, which few need

                for words in remove_on_hosts(details):
                    click.echo(words, err=True)
            _remove(home, folder)
        click.echo(f"removed run {folder.id}")
        if details.plan.cluster and not volumes:
            from drumline.cli.volumes import left_behind  # noqa: PLC0415

            for words in left_behind(details):
                click.echo(words, err=True)
        elif details.origin and details.origin.is_shared:
            click.echo(f"its output stays in {details.origin.output_dir} on {details.origin.host}", err=True)
        elif details.plan.output and not details.plan.cluster and not details.output_dir.startswith(details.folder):
            click.echo(f"its output stays in {details.output_dir}", err=True)


def _folder(home: Path, text: str) -> RunFolder:
    target = parse_target(text)
    if target.role is not None:
        raise InputError(
            f"{text}: only whole runs can be removed", hint=f"`drumline rm {target.run}` removes all of it"
        )
    return find_folder(home, target.run)


def _check(folder: RunFolder) -> RunDetails:
    """Read a run; raise InputError if it is not over."""
    details = run_details(folder, read_clock())
    phase = details.run.summary.phase
    never_began = phase == Phase.CREATED and details.run.supervisor_gone
    if not details.run.summary.is_final and not never_began:
        raise InputError(f"run {folder.id} is not over: {phase}", hint=f"`drumline kill {folder.id}` ends it")
    return details


def _remove(home: Path, folder: RunFolder) -> None:
    """Remove a run's files; what says that it is over goes last, so that an interrupted removal can be repeated."""
    with _held(folder):
        phase = read_state(folder).phase
        if not phase.is_final and phase is not Phase.CREATED:
            raise InputError(f"run {folder.id} has been resumed: {phase}", hint=f"`drumline kill {folder.id}` ends it")
        try:
            for entry in list(folder.path.iterdir()):
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry)
            for entry in list(folder.path.iterdir()):
                if entry != folder.lock_file:  # without it nobody can be kept from taking the run up
                    entry.unlink(missing_ok=True)  # who looks up which code it was renames a file
            _remove_folder(folder.path)
        except OSError as error:
            raise EngineError(f"cannot remove {error.filename or folder.path}: {error.strerror}") from None
    with suppress(UnusableIndexError):
        use_index(home, lambda index: index.forget([folder.id]))


def _remove_folder(path: Path) -> None:
    """Remove a folder into which somebody who wanted the run may still write, until they see that it is gone."""
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
    """Hold the run's lock, so that nobody takes it up; its last supervisor may need a moment to leave."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while (lock := take_lock(folder.lock_file)) is None:
        if time.monotonic() > deadline:
            raise EngineError(f"the supervisor of run {folder.id} does not leave", hint="try again in a moment")
    try:
        yield
    finally:
        os.close(lock)
