"""The claims on this machine's CPUs, memory and GPUs: what each run holds or waits for. One registry for each user.

An entry is a JSON file and a FIFO. The supervisor has the FIFO open for writing, and so has every keeper of the run,
which inherits it. When the last of them ends, the kernel closes the FIFO and wakes its readers. An entry is stale if no
process has its FIFO open; the next process that locks the registry removes it.
An entry has one FIFO while its run waits and another while the run holds resources, so that the runs behind it are
woken when it begins. The folder is named after the boot id: homes may be shared between machines, FIFOs are not.
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


class _LiveEntry(Record):
    """An entry with an open FIFO, and a descriptor that becomes readable when the last writer closes the FIFO."""

    entry: ClaimEntry
    watched: int


class ClaimRegistry:
    """The entry of one run in the registry; owns its FIFO, and the descriptors by which other entries are watched."""

    def __init__(self, home: Path, *, boot: str, run: str) -> None:
        self._home = home / "ledger"
        self._folder = self._home / (boot or "boot")
        self._run = run
        self._own: int | None = None  # the FIFO of this run's entry
        self._watched: list[int] = []
        self._loop: AbstractEventLoop | None = None
        self.entry: ClaimEntry | None = None
        self.taken: frozenset[str] = frozenset()  # GPUs of other runs at the last claim

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Return the descriptors that keepers inherit, so that the claim lasts as long as they run."""
        return () if self._own is None else (self._own,)

    def claim(self, claim: Claim, capacity: Capacity, *, insist: bool = False) -> str:
        """Claim these resources, or queue for them; return the reason to wait, and "" if the run has them.

        If keepers of this run still hold a claim, it is taken over. With `insist`, the resources are claimed even if
        they are not free. Raise EngineError if the registry cannot be written.
        """
        self._unwatch()
        with self._locked():
            live = self._read(clean=True)
            own = live.pop(self._run, None)
            if own:
                os.close(own.watched)
                self.entry = own.entry
            others = [each.entry for each in live.values()]
            self.taken = held_gpus(others)
            message = ""
            if not (own and own.entry.holds):
                message = "" if insist else waiting_reason(self._run, claim, others, capacity)
                gpus = () if message else choose_gpus(claim, others, capacity)
                self._enter(ClaimEntry(self._run, claim, not message, gpus))
            elif self._own is None:
                self._own = os.open(self._fifo(_HOLDS), os.O_RDWR | os.O_CLOEXEC)
            # Only entries that hold resources, or come earlier in the queue, can free resources for this run.
            mine = queue_order(self._run)
            for each in live.values():
                if message and (each.entry.holds or queue_order(each.entry.run) < mine):
                    self._watched.append(each.watched)
                else:
                    os.close(each.watched)
        return message

    def is_held(self) -> bool:
        """Return whether the supervisor or a keeper of this run holds a claim."""
        entry = self.entries().get(self._run)
        return entry is not None and entry.holds

    def entries(self) -> dict[str, ClaimEntry]:
        """Return every entry that is not stale, by run; change nothing."""
        live = self._read(clean=False)
        for each in live.values():
            os.close(each.watched)
        return {run: each.entry for run, each in live.items()}

    def watch(self, loop: AbstractEventLoop, call: Callable[[], object]) -> None:
        """Call `call` when an entry that delays this run ends or holds resources; the next `claim` ends the watch."""
        self._loop = loop
        for descriptor in self._watched:
            loop.add_reader(descriptor, call)

    def release(self) -> None:
        """Release the claim, or the place in the queue."""
        self._unwatch()
        if self._own is None:
            return
        try:
            with self._locked():
                for name in (f"{self._run}.json", f"{self._run}.{_HOLDS}", f"{self._run}.{_WAITS}"):
                    _remove(self._folder / name)
                for each in self._read(clean=True).values():
                    os.close(each.watched)
                os.close(self._own)
        except EngineError:  # the next process that locks the registry removes the entry
            os.close(self._own)
        self._own = self.entry = None

    def _unwatch(self) -> None:
        for descriptor in self._watched:
            if self._loop:
                self._loop.remove_reader(descriptor)
            os.close(descriptor)
        self._watched, self._loop = [], None

    def _enter(self, entry: ClaimEntry) -> None:
        """Write the entry of this run; then close its previous FIFO, which wakes the runs behind it."""
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

    def _read(self, *, clean: bool) -> dict[str, _LiveEntry]:
        """Return every entry that is not stale; with `clean`, which needs the lock, remove the stale ones."""
        try:
            names = set(os.listdir(self._folder))  # noqa: PTH208
        except FileNotFoundError:
            return {}
        live = {}
        for name in sorted(names):
            run, _, kind = name.rpartition(".")
            entry = _parse(self._folder / name) if kind == "json" else None
            if entry is None or entry.run != run:
                continue
            state = _HOLDS if entry.holds else _WAITS
            watched = _open_alive(self._folder / f"{run}.{state}")
            if watched is not None:
                live[run] = _LiveEntry(entry, watched)
                names -= {name, f"{run}.{state}"}
        if clean:
            for name in names:
                _remove(self._folder / name)
        return live

    def _fifo(self, state: str) -> Path:
        return self._folder / f"{self._run}.{state}"

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock the registry. Nothing may be forked meanwhile: a fork would hold the lock too."""
        try:
            make_folder(self._home)
            lock = open_file(self._home / "lock", os.O_RDWR | os.O_CREAT)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                self._folder.mkdir(exist_ok=True, mode=0o700)
                yield
                with suppress(OSError):
                    self._folder.rmdir()  # if it is empty
            finally:
                os.close(lock)
        except OSError as error:
            raise EngineError(
                f"claims cannot be kept in {self._home}: {error.strerror}",
                hint="set DRUMLINE_HOME to a folder on a disk of this machine",
            ) from None


def _open_alive(fifo: Path) -> int | None:
    """Open a FIFO for reading if a process has it open for writing; else return None."""
    try:
        descriptor = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        while os.read(descriptor, 4096):
            pass
    except BlockingIOError:  # a process has it open for writing
        return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None


def _parse(path: Path) -> ClaimEntry | None:
    """Read an entry; return None if the file is not a valid entry."""
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
    """Replace the file of an entry atomically."""
    data = {"v": 1, "run": entry.run, "holds": entry.holds, **to_dict(entry.claim), "gpu_ids": entry.gpus}
    write_file(path, json.dumps(data).encode())


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()
