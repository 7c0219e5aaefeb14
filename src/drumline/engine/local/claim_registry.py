"""The ledger of claims: who has what of this machine, and who waits for it; one for all runs of a user.

An entry is a JSON file and a FIFO beside it. The supervisor has the FIFO open for writing, and so has every keeper of
the run, which inherited it: an entry lives as long as one of them does. Whatever dies, the kernel closes it; a reader
is told so at that moment. What nobody has open is nobody's, and whoever holds the ledger's lock next removes it.
The FIFO of a run that waits is another than that of a run that holds, so that whoever waits behind it is told of that
change as well. All of it is in a folder named after the boot: a home may be shared between machines, a FIFO is not.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drumline.engine.local.claim_queue import Claim, ClaimEntry, choose_gpus, held_gpus, queue_order, waiting_reason
from drumline.engine.protocol import Capacity
from drumline.errors import EngineError
from drumline.record import Record, field_names, to_dict
from drumline.runtime.private import make_folder, open_file, write_file

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

_HOLDS, _WAITS = "holds", "waits"


class _Living(Record):
    """Somebody's entry, and what is readable when nobody has it any more."""

    entry: ClaimEntry
    watched: int


class ClaimRegistry:
    """One run's entry among the others; owns the descriptors that keep it alive and that tell of the others."""

    def __init__(self, home: Path, *, boot: str, run: str) -> None:
        self._home = home / "ledger"
        self._folder = self._home / (boot or "boot")
        self._run = run
        self._own: int | None = None  # our entry's FIFO
        self._watched: list[int] = []
        self._loop: AbstractEventLoop | None = None
        self.entry: ClaimEntry | None = None
        self.taken: frozenset[str] = frozenset()  # GPUs that others had when we last looked

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What a keeper must hold to keep the claim."""
        return () if self._own is None else (self._own,)

    def claim(self, claim: Claim, capacity: Capacity, *, insist: bool = False) -> str:
        """Take what is asked for, or a place in line; return for what we wait, and nothing once we have it.

        What keepers of this run still hold is ours already. Raise EngineError if the ledger cannot be kept.
        """
        self._forget()
        with self._locked():
            living = self._read(clean=True)
            own = living.pop(self._run, None)
            if own:
                os.close(own.watched)
                self.entry = own.entry
            others = [each.entry for each in living.values()]
            self.taken = held_gpus(others)
            message = ""
            if not (own and own.entry.holds):
                message = "" if insist else waiting_reason(self._run, claim, others, capacity)
                gpus = () if message else choose_gpus(claim, others, capacity)
                self._enter(ClaimEntry(self._run, claim, not message, gpus))
            elif self._own is None:
                self._own = os.open(self._fifo(_HOLDS), os.O_RDWR | os.O_CLOEXEC)
            # Only who holds or is before us can make room for us.
            mine = queue_order(self._run)
            for each in living.values():
                if message and (each.entry.holds or queue_order(each.entry.run) < mine):
                    self._watched.append(each.watched)
                else:
                    os.close(each.watched)
        return message

    def is_held(self) -> bool:
        """Whether somebody of this run, perhaps only its keepers, holds a claim."""
        living = self.entries()
        return self._run in living and living[self._run].holds

    def entries(self) -> dict[str, ClaimEntry]:
        """Every living entry, by its run; nothing is changed."""
        living = self._read(clean=False)
        for each in living.values():
            os.close(each.watched)
        return {run: each.entry for run, each in living.items()}

    def watch(self, loop: AbstractEventLoop, call: Callable[[], object]) -> None:
        """Call this when somebody who is in our way has gone or begun; the next `claim` ends it."""
        self._loop = loop
        for descriptor in self._watched:
            loop.add_reader(descriptor, call)

    def release(self) -> None:
        """Give the claim back, or the place in line."""
        self._forget()
        if self._own is None:
            return
        try:
            with self._locked():
                for name in (f"{self._run}.json", f"{self._run}.{_HOLDS}", f"{self._run}.{_WAITS}"):
                    _remove(self._folder / name)
                for each in self._read(clean=True).values():
                    os.close(each.watched)
                os.close(self._own)
        except EngineError:  # whoever comes next removes what is left of it
            os.close(self._own)
        self._own = self.entry = None

    def _forget(self) -> None:
        for descriptor in self._watched:
            if self._loop:
                self._loop.remove_reader(descriptor)
            os.close(descriptor)
        self._watched, self._loop = [], None

    def _enter(self, entry: ClaimEntry) -> None:
        """Write our entry; the FIFO that it had before is closed last, which tells those who wait behind us."""
        if self._own is not None and self.entry == entry:
            return
        before, now = (_WAITS, _HOLDS) if entry.holds else (_HOLDS, _WAITS)
        fifo = self._fifo(now)
        _remove(fifo)
        os.mkfifo(fifo, 0o600)
        opened = os.open(fifo, os.O_RDWR | os.O_CLOEXEC)
        try:
            _write(self._folder / f"{self._run}.json", entry)
        except OSError:
            os.close(opened)
            raise
        if self._own is not None:
            os.close(self._own)
        _remove(self._fifo(before))
        self._own, self.entry = opened, entry

    def _read(self, *, clean: bool) -> dict[str, _Living]:
        """Every living entry; remove what is nobody's, if we may: that needs the lock."""
        try:
            names = set(os.listdir(self._folder))  # noqa: PTH208
        except FileNotFoundError:
            return {}
        living = {}
        for name in sorted(names):
            run, _, kind = name.rpartition(".")
            entry = _parse(self._folder / name) if kind == "json" else None
            if entry is None or entry.run != run:
                continue
            state = _HOLDS if entry.holds else _WAITS
            watched = _open_alive(self._folder / f"{run}.{state}")
            if watched is not None:
                living[run] = _Living(entry, watched)
                names -= {name, f"{run}.{state}"}
        if clean:
            for name in names:
                _remove(self._folder / name)
        return living

    def _fifo(self, state: str) -> Path:
        return self._folder / f"{self._run}.{state}"

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Be the only one who looks and decides. Nothing may be forked meanwhile: a lock lives in every copy."""
        try:
            make_folder(self._home)
            lock = open_file(self._home / "lock", os.O_RDWR | os.O_CREAT)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                self._folder.mkdir(exist_ok=True, mode=0o700)
                yield
                with suppress(OSError):
                    self._folder.rmdir()  # if nobody is left in it
            finally:
                os.close(lock)
        except OSError as error:
            raise EngineError(
                f"claims cannot be kept in {self._home}: {error.strerror}",
                hint="set DRUMLINE_HOME to a folder on a disk of this machine",
            ) from None


def _open_alive(fifo: Path) -> int | None:
    """Open a FIFO that somebody else has open; None if nobody does."""
    try:
        descriptor = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        while os.read(descriptor, 4096):
            pass
    except BlockingIOError:  # there might still come something, so there is a writer
        return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None


def _parse(path: Path) -> ClaimEntry | None:
    """Read an entry; None for what is not one."""
    try:
        data: Any = json.loads(path.read_bytes())
        claim = Claim(**{kind: int(data[kind]) for kind in field_names(Claim)})
        gpus = tuple(str(gpu) for gpu in data["gpu_ids"])
        queue_order(data["run"])
        if min(to_dict(claim).values()) < 0 or not isinstance(data["holds"], bool):
            return None
        return ClaimEntry(data["run"], claim, data["holds"], gpus)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None


def _write(path: Path, entry: ClaimEntry) -> None:
    """Write an entry as a whole."""
    data = {"v": 1, "run": entry.run, "holds": entry.holds, **to_dict(entry.claim), "gpu_ids": entry.gpus}
    write_file(path, json.dumps(data).encode())


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()
