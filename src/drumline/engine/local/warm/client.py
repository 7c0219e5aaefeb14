"""Connections of a supervisor to warm processes: find or start them, and fork replicas from them."""

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
FOREGROUND, BACKGROUND = "foreground", "background"  # whether replicas wait for a warm process

READY = "ready"  # in the folder of a warm process, which holds a lock on it while it serves
PREPARING = "the warm process is still importing"
_ENDED = "the warm process has ended"
# Longer than the import of any framework on a busy machine. Replicas that have waited for this time start cold.
IMPORT_SECONDS = 120.0
# The delay before a warm process starts, in which cold replicas finish their imports: even at the lowest priority it
# slowed four replicas of torch on eight cores down by 7 to 11 %.
COME_UP_SECONDS = 5.0
# A warm process that is ready answers in milliseconds. A process that is stopped by a signal does not answer.
HELLO_SECONDS = 5.0
_RETRY_SECONDS = 0.005


class WarmRequest(Record):
    """The warm process that a replica can be forked from, and the command that it becomes."""

    key: str
    command: Command
    env: Mapping[str, str]  # of the warm process itself
    modules: tuple[str, ...]  # that it imports besides the framework
    workdir: str
    executed: Executed


class WarmSettings(Record):
    """What the warm processes of a run import, and how long they stay after it."""

    framework: str
    modules: tuple[str, ...]
    keep_seconds: float
    own: frozenset[str]  # variables that belong to one run or replica
    secrets: frozenset[str] = frozenset()  # variables that no warm process gets


async def make_warm_request(
    kind: WarmSettings, argv: Sequence[str], env: Mapping[str, str], workdir: str
) -> WarmRequest:
    """Return the warm process and the command for a replica; raise NotWarm if the replica has to start cold.

    The warm process outlives the run, so it gets none of the run's secrets. A module that the spec names might read a
    secret when it is imported; so if there are secrets, the replica imports the module, not the warm process.
    """
    executed = await resolve_shell(argv, env, workdir)
    command = read_command(executed.argv, executed.env, executed.workdir)
    check_secrets(kind.secrets, kind.framework)
    modules = () if kind.secrets else kind.modules
    sets = inspect_script(command, kind.framework, modules, executed.workdir)
    left_out = kind.own | kind.secrets | (frozenset() if modules else credentials({**env, **executed.env}))
    left_out |= derived(executed.assigned, lambda name: is_of_one_replica(name, left_out), kind.framework)
    shared = {**shared_environment(executed.env, left_out), **sets}
    key = make_key(command, kind.framework, modules, shared, WARM_FILE)
    return WarmRequest(key, command, shared, modules, executed.workdir, executed)


def warm_folder(home: Path) -> Path:
    """Return the folder of a home's warm processes; each has a folder in it."""
    return home / "warm"


class WarmProcesses:
    """The warm processes that one run uses; owns a connection to each."""

    def __init__(self, home: Path, kind: WarmSettings, loop: asyncio.AbstractEventLoop) -> None:
        self._folder = warm_folder(home)
        self.kind = kind
        self._loop = loop
        self._known: dict[str, _WarmProcess] = {}
        self._later: dict[str, WarmRequest] = {}  # to be started

    @property
    def pids(self) -> set[int]:
        """Return the pids of the warm processes that this process started."""
        return {each.pid for each in self._known.values() if each.pid is not None}

    def is_ready(self, request: WarmRequest) -> bool:
        """Return whether `open` returns without waiting for an import."""
        process = self._known.get(request.key)
        if process is None or process.is_gone:
            return serves(self._folder / request.key)
        return process.is_ready

    def prepare(self, request: WarmRequest) -> None:
        """Start a warm process at low priority after COME_UP_SECONDS, when the starting replicas have imported."""
        if request.key not in self._later:
            self._later[request.key] = request
            self._loop.call_later(COME_UP_SECONDS, self._start, request.key)

    async def open(self, request: WarmRequest, *, waits: bool) -> Forker:
        """Return a forker for this request once its warm process is ready; raise NotWarm if that fails.

        Without `waits`, NotWarm is also raised if the warm process is not ready.
        """
        process = self._find(request, waits=waits)
        await process.wait_ready(request, waits=waits)
        return partial(process.fork, request)

    def _start(self, key: str) -> None:
        if request := self._later.pop(key, None):
            self._find(request, waits=False)

    def _find(self, request: WarmRequest, *, waits: bool) -> _WarmProcess:
        process = self._known.get(request.key)
        if process is None or process.is_gone:
            folder = self._folder / request.key
            process = self._known[request.key] = _WarmProcess(folder, self.kind, request, self._loop, waits=waits)
        return process

    def close(self) -> None:
        """Close the connections; the processes stay for the next run, and those that are scheduled start now."""
        if self.kind.keep_seconds > 0:
            for key in list(self._later):
                self._start(key)
        self._later.clear()
        for process in self._known.values():
            process.close()


class _WarmProcess:
    """A connection to one warm process."""

    def __init__(
        self, folder: Path, kind: WarmSettings, request: WarmRequest, loop: asyncio.AbstractEventLoop, *, waits: bool
    ) -> None:
        self._folder = folder
        self._kind = kind
        self._request = request
        self._loop = loop
        self._waits = waits  # whether replicas wait for its import
        self._refused = ""  # why nothing can be forked from it
        self._names: frozenset[str] | None = None  # the modules that it has loaded, once it is ready
        self._connection: OrderConnection | None = None  # None while another supervisor starts the process
        self._answer: asyncio.Future[dict[str, Any]] | None = None
        self._is_closed = False
        self.pid: int | None = None  # if this process started it
        self._connect()
        self._greeting = loop.create_task(self._greet(is_first=True))

    @property
    def is_gone(self) -> bool:
        return not self._refused and self._connection is not None and self._connection.is_lost

    @property
    def is_ready(self) -> bool:
        """Return whether the process has answered or failed, or is ready to answer."""
        return self._names is not None or bool(self._refused) or serves(self._folder)

    async def wait_ready(self, request: WarmRequest, *, waits: bool) -> None:
        """Wait until replicas can be forked for this request; raise NotWarm if they cannot."""
        self._waits = waits
        while self._names is None and not self._refused:
            greeting, is_ready = self._greeting, serves(self._folder)
            if not waits and not is_ready:
                raise NotWarm(PREPARING)
            try:
                async with asyncio.timeout(HELLO_SECONDS if is_ready else IMPORT_SECONDS):
                    await asyncio.shield(greeting)
            except TimeoutError:
                if greeting is self._greeting and not greeting.done():
                    self._refused = f"the warm process {'does not answer' if is_ready else 'is not ready in time'}"
                    self.close()
        if self._refused:
            raise NotWarm(self._refused)
        if self.is_gone or self._names is None:
            raise NotWarm(_ENDED)
        check_shadows(request.command, request.workdir, self._names)

    async def fork(self, request: WarmRequest, order: Order, descriptors: Descriptors) -> int:
        """Have a replica forked that runs the command of this request, see Forker."""
        if self._connection is None:
            raise ForkerLost
        executed = request.executed
        env = {**executed.env, **{name: order.env[name] for name in GIVEN_LATER if name in order.env}}
        order = order._replace(argv=executed.argv, env=env, workdir=executed.workdir)
        script = {"path": request.command.path, "module": request.command.module, "shell": executed.parent}
        return await self._connection.fork(order, descriptors, {"script": script})

    def close(self) -> None:
        """Close the connection; the process stays for the next run."""
        self._is_closed = True
        if self._connection:
            self._connection.close()

    def _connect(self) -> None:
        """Connect to the process, or start it, and send `hello`; do nothing while another supervisor starts it."""
        self._connection = self._answer = None
        try:
            connection = connect(self._folder / "socket", waits=False) or self._start()
        except OSError as error:
            self._refused = f"no warm process can be started: {error.strerror}"
            return
        if connection:
            self._connection = OrderConnection(connection, self._loop)
            # Sent at once, so that the process stays for the next run even if this one ends now.
            self._answer = self._connection.ask("", {"do": "hello", "keep": self._kind.keep_seconds})

    async def _greet(self, *, is_first: bool) -> None:
        """Record the modules that the process has loaded, or why nothing can be forked from it.

        If the process ends or its files have changed, connect to a new one.
        """
        while self._connection is None and not self._refused and not self._is_closed:
            await asyncio.sleep(_RETRY_SECONDS)
            self._connect()
        connection, answer = self._connection, self._answer
        if connection is None or answer is None:
            return
        try:
            reply = await answer
            if not reply["changed"]:
                connection.identify(reply["pid"])
                self._refused, self._names = str(reply["unfit"]), frozenset(reply["names"])
                return
        except ForkerLost:
            if self._refused or self._is_closed:
                return
            if self.pid is not None or not is_first:
                self._refused = f"{_ENDED}{self._last_line()}"
                return
        except (OSError, ValueError, TypeError, LookupError, OverflowError):
            self._refused = "the warm process is broken"
            connection.lose()
            return
        connection.close()
        self._connect()
        self._greeting = self._loop.create_task(self._greet(is_first=False))

    def _start(self) -> socket.socket | None:
        """Start a warm process; return None if another supervisor is starting it."""
        lock = self._open_lock()
        try:
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return self._start_locked()
            return None
        finally:
            os.close(lock)

    def _start_locked(self) -> socket.socket:
        connection = connect(self._folder / "socket", waits=False)
        if connection is None:
            with listen(self._folder / "socket") as listener:
                # Connected before it starts: a warm process without connections ends at once.
                connection = connect(self._folder / "socket", waits=False)
                if connection is None:
                    raise ConnectionRefusedError(0, "it does not listen")
                self.pid = self._spawn(listener)
        return connection

    def _open_lock(self) -> int:
        """Open the lock file that is held while a process starts; an earlier process may remove it meanwhile."""
        while True:
            for folder in (self._folder.parent, self._folder):
                folder.mkdir(mode=0o700, exist_ok=True)
            _remove_stale(self._folder.parent, self._folder)
            with suppress(FileNotFoundError):
                return open_file(self._folder / "lock", os.O_RDWR | os.O_CREAT)

    def _spawn(self, listener: socket.socket) -> int:
        command = self._request.command
        log = open_file(self._folder / "log", os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
        try:
            words = [
                str(self._folder),
                self._kind.framework,
                FOREGROUND if self._waits else BACKGROUND,
                *self._request.modules,
            ]
            process = subprocess.Popen(
                [command.interpreter, *command.options, WARM_FILE, str(listener.fileno()), *words],
                env=self._request.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[listener.fileno()],
                start_new_session=True,
            )
        finally:
            os.close(log)
        process.returncode = 0  # it outlives this process, and is never waited for
        return process.pid

    def _last_line(self) -> str:
        """Return the last line of the process's log."""
        with suppress(OSError):
            lines = (self._folder / "log").read_text(errors="replace").strip().splitlines()
            return f": {lines[-1][:150]}" if lines else ""
        return ""


def serves(folder: Path) -> bool:
    """Return whether the warm process of a folder has finished importing and serves."""
    with suppress(OSError):
        return is_locked(folder / READY)
    return False


def _remove_stale(folder: Path, but: Path) -> None:
    """Remove the folders of warm processes that have ended, except `but`."""
    for each in folder.iterdir():
        with suppress(BlockingIOError):  # a process listens there
            connection = None if each == but else connect(each / "socket", waits=False)
            if connection:
                connection.close()
            elif each != but and not is_locked(each / "lock"):
                shutil.rmtree(each, ignore_errors=True)
