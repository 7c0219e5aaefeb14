"""Warm processes as a supervisor sees them: found or begun, asked for replicas, and left to the next run."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from drumline.engine.local.forker import Forker, ForkerLost, OrderConnection
from drumline.engine.local.warm.command import Command, NotWarm, read_command
from drumline.engine.local.warm.key import is_of_one_replica, make_key, shared_environment
from drumline.engine.local.warm.script import check_secrets, check_shadows, credentials, derived, inspect_script
from drumline.engine.local.warm.shell import GIVEN_LATER, Executed, resolve_shell
from drumline.record import Record
from drumline.runtime.lock import is_locked
from drumline.runtime.order import Descriptors, Order
from drumline.runtime.private import open_file
from drumline.runtime.unix import connect, listen

WARM_FILE = str(Path(__file__).parents[3] / "runtime" / "warm.py")
AWAITED, ASIDE = "awaited", "aside"  # whether a start waits for a warm process, or goes on beside it

READY = "ready"  # in the folder of a warm process, which holds a lock on it while it serves
PREPARING = "the warm process is being made ready"
_ENDED = "the warm process has ended"
# Longer than any framework takes to be imported on a busy machine. Whoever waited as long is started by itself.
PATIENCE_SECONDS = 120.0
# So long replicas that start cold import with no warm process beside them. At the lowest priority it slowed four
# replicas of torch on eight cores down by 7 to 11 %.
COME_UP_SECONDS = 5.0
# A warm process that is ready answers in milliseconds. One that is stopped does not answer.
HELLO_SECONDS = 5.0
_MOMENT_SECONDS = 0.005


class WarmRequest(Record):
    """What a replica could be forked from, and what it would become."""

    key: str
    command: Command
    env: Mapping[str, str]  # of the warm process itself
    modules: tuple[str, ...]  # that it has imported, besides the framework
    workdir: str
    executed: Executed


class WarmSettings(Record):
    """What a run's warm processes have imported, and how long they stay when it is over."""

    framework: str
    modules: tuple[str, ...]
    keep_seconds: float
    own: frozenset[str]  # variables that belong to one run or replica
    secrets: frozenset[str] = frozenset()  # variables that no warm process is given


async def make_warm_request(
    kind: WarmSettings, argv: Sequence[str], env: Mapping[str, str], workdir: str
) -> WarmRequest:
    """Say what to fork a replica from; raise NotWarm if it has to be started by itself.

    The warm process outlives the run, so it gets none of the run's secrets. A module that the spec names might read
    one when it is imported: then the replica imports it.
    """
    executed = await resolve_shell(argv, env, workdir)
    command = read_command(executed.argv, executed.env, executed.workdir)
    sets = inspect_script(command, kind.framework, executed.workdir)
    check_secrets(kind.secrets, kind.framework)
    modules = () if kind.secrets else kind.modules
    left_out = kind.own | kind.secrets | (frozenset() if modules else credentials({**env, **executed.env}))
    left_out |= derived(executed.assigned, lambda name: is_of_one_replica(name, left_out), kind.framework)
    shared = {**shared_environment(executed.env, left_out), **sets}
    key = make_key(command, kind.framework, modules, shared, WARM_FILE)
    return WarmRequest(key, command, shared, modules, executed.workdir, executed)


def warm_folder(home: Path) -> Path:
    """Where the warm processes of a home are to be found, each in a folder of its own."""
    return home / "warm"


class WarmProcesses:
    """The warm processes that one run uses; owns a connection to each."""

    def __init__(self, home: Path, kind: WarmSettings, loop: asyncio.AbstractEventLoop) -> None:
        self._folder = warm_folder(home)
        self.kind = kind
        self._loop = loop
        self._known: dict[str, _WarmProcess] = {}
        self._later: dict[str, WarmRequest] = {}  # what is to be made ready

    @property
    def pids(self) -> set[int]:
        """Return those that this process has begun."""
        return {each.pid for each in self._known.values() if each.pid is not None}

    def is_ready(self, wish: WarmRequest) -> bool:
        """Return whether `open` does not wait for an import."""
        process = self._known.get(wish.key)
        if process is None or process.is_gone:
            return serves(self._folder / wish.key)
        return process.is_ready

    def prepare(self, wish: WarmRequest) -> None:
        """Have a warm process made ready at low priority, when the replicas that start now have come up."""
        if wish.key not in self._later:
            self._later[wish.key] = wish
            self._loop.call_later(COME_UP_SECONDS, self._begin, wish.key)

    async def open(self, wish: WarmRequest, *, waits: bool) -> Forker:
        """Return what forks replicas for this wish, when it can; raise NotWarm if it cannot.

        Unless it waits, a warm process that turns out not to be ready is a reason.
        """
        process = self._find(wish, waits=waits)
        await process.wait_ready(wish, waits=waits)
        return partial(process.fork, wish)

    def _begin(self, key: str) -> None:
        if wish := self._later.pop(key, None):
            self._find(wish, waits=False)

    def _find(self, wish: WarmRequest, *, waits: bool) -> _WarmProcess:
        process = self._known.get(wish.key)
        if process is None or process.is_gone:
            folder = self._folder / wish.key
            process = self._known[wish.key] = _WarmProcess(folder, self.kind, wish, self._loop, waits=waits)
        return process

    def close(self) -> None:
        """Leave them all to the next run, those too that are still to be made ready."""
        if self.kind.keep_seconds > 0:
            for key in list(self._later):
                self._begin(key)
        self._later.clear()
        for process in self._known.values():
            process.close()


class _WarmProcess:
    """One warm process at the other end of a connection."""

    def __init__(
        self, folder: Path, kind: WarmSettings, wish: WarmRequest, loop: asyncio.AbstractEventLoop, *, waits: bool
    ) -> None:
        self._folder = folder
        self._kind = kind
        self._wish = wish
        self._loop = loop
        self._waits = waits  # whether a start waits for it while it imports
        self._refused = ""  # why nothing is ever forked from it
        self._names: frozenset[str] | None = None  # what it has loaded, once it is ready
        self._connection: OrderConnection | None = None  # none while another supervisor begins the process
        self._answer: asyncio.Future[dict[str, Any]] | None = None
        self._is_closed = False
        self.pid: int | None = None  # if this process began it
        self._connect()
        self._greeting = loop.create_task(self._greet(is_first=True))

    @property
    def is_gone(self) -> bool:
        return not self._refused and self._connection is not None and self._connection.is_lost

    @property
    def is_ready(self) -> bool:
        """Return whether it has answered, or is going to at once; what never comes has answered, too."""
        return self._names is not None or bool(self._refused) or serves(self._folder)

    async def wait_ready(self, wish: WarmRequest, *, waits: bool) -> None:
        """Return when replicas can be forked for this wish; raise NotWarm if they cannot."""
        self._waits = waits
        while self._names is None and not self._refused:
            greeting, is_ready = self._greeting, serves(self._folder)
            if not waits and not is_ready:
                raise NotWarm(PREPARING)
            try:
                async with asyncio.timeout(HELLO_SECONDS if is_ready else PATIENCE_SECONDS):
                    await asyncio.shield(greeting)
            except TimeoutError:
                if greeting is self._greeting and not greeting.done():
                    self._refused = f"the warm process {'does not answer' if is_ready else 'is not ready in time'}"
                    self.close()
        if self._refused:
            raise NotWarm(self._refused)
        if self.is_gone or self._names is None:
            raise NotWarm(_ENDED)
        check_shadows(wish.command, wish.workdir, self._names)

    async def fork(self, wish: WarmRequest, order: Order, descriptors: Descriptors) -> int:
        """Have a replica forked that becomes the command of this wish, see Forker."""
        if self._connection is None:
            raise ForkerLost
        executed = wish.executed
        env = {**executed.env, **{name: order.env[name] for name in GIVEN_LATER if name in order.env}}
        order = order._replace(argv=executed.argv, env=env, workdir=executed.workdir)
        script = {"path": wish.command.path, "module": wish.command.module, "shell": executed.parent}
        return await self._connection.fork(order, descriptors, {"script": script})

    def close(self) -> None:
        """Leave the process to the next run."""
        self._is_closed = True
        if self._connection:
            self._connection.close()

    def _connect(self) -> None:
        """Find or begin the process, and greet it; does nothing while another supervisor begins it."""
        self._connection = self._answer = None
        try:
            connection = connect(self._folder / "socket", waits=False) or self._begin()
        except OSError as error:
            self._refused = f"no warm process can be started: {error.strerror}"
            return
        if connection:
            self._connection = OrderConnection(connection, self._loop)
            # Sent at once: a run that ends now leaves the process to the next one.
            self._answer = self._connection.ask("", {"do": "hello", "keep": self._kind.keep_seconds})

    async def _greet(self, *, is_first: bool) -> None:
        """Note what the process has loaded, or why nothing is forked from it; begin another one if it leaves."""
        while self._connection is None and not self._refused and not self._is_closed:
            await asyncio.sleep(_MOMENT_SECONDS)
            self._connect()
        connection, answer = self._connection, self._answer
        if connection is None or answer is None:
            return
        try:
            said = await answer
            if not said["changed"]:
                connection.identify(said["pid"])
                self._refused, self._names = str(said["unfit"]), frozenset(said["names"])
                return
        except ForkerLost:
            if self._refused or self._is_closed:
                return
            if self.pid is not None or not is_first:
                self._refused = f"{_ENDED}{self._last_word()}"
                return
        except (OSError, ValueError, TypeError, LookupError, OverflowError):
            self._refused = "the warm process is broken"
            connection.lose()
            return
        connection.close()
        self._connect()
        self._greeting = self._loop.create_task(self._greet(is_first=False))

    def _begin(self) -> socket.socket | None:
        """Start a warm process; None if another supervisor does so at this moment."""
        lock = self._open_lock()
        try:
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return self._begin_locked()
            return None
        finally:
            os.close(lock)

    def _begin_locked(self) -> socket.socket:
        connection = connect(self._folder / "socket", waits=False)
        if connection is None:
            with listen(self._folder / "socket") as listener:
                # Before it begins: one that has nothing to serve ends at once.
                connection = connect(self._folder / "socket", waits=False)
                if connection is None:
                    raise ConnectionRefusedError(0, "it does not listen")
                self.pid = self._spawn(listener)
        return connection

    def _open_lock(self) -> int:
        """Return the lock of the process that begins one here; the last one may be about to remove the folder."""
        while True:
            for folder in (self._folder.parent, self._folder):
                folder.mkdir(mode=0o700, exist_ok=True)
            _clear(self._folder.parent, self._folder)
            with suppress(FileNotFoundError):
                return open_file(self._folder / "lock", os.O_RDWR | os.O_CREAT)

    def _spawn(self, listener: socket.socket) -> int:
        command = self._wish.command
        log = open_file(self._folder / "log", os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
        try:
            words = [str(self._folder), self._kind.framework, AWAITED if self._waits else ASIDE, *self._wish.modules]
            process = subprocess.Popen(
                [command.interpreter, *command.options, WARM_FILE, str(listener.fileno()), *words],
                env=self._wish.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[listener.fileno()],
                start_new_session=True,
            )
        finally:
            os.close(log)
        process.returncode = 0  # it outlives this process, which never waits for it
        return process.pid

    def _last_word(self) -> str:
        """Return the last line that a warm process wrote."""
        with suppress(OSError):
            lines = (self._folder / "log").read_text(errors="replace").strip().splitlines()
            return f": {lines[-1][:150]}" if lines else ""
        return ""


def serves(folder: Path) -> bool:
    """Return whether the warm process of a folder has imported all and answers, unless it is stopped."""
    with suppress(OSError):
        return is_locked(folder / READY)
    return False


def _clear(folder: Path, but: Path) -> None:
    """Remove what warm processes left that have ended."""
    for each in folder.iterdir():
        with suppress(BlockingIOError):  # a process listens there
            connection = None if each == but else connect(each / "socket", waits=False)
            if connection:
                connection.close()
            elif each != but and not is_locked(each / "lock"):
                shutil.rmtree(each, ignore_errors=True)
