"""Warm processes as a supervisor sees them: found or begun, asked for replicas, and left to the next run."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import shutil
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drumline.engine.local.warm.command import Command, NotWarm, read_command
from drumline.engine.local.warm.key import is_of_one_replica, limit_names, make_key, shared_environment
from drumline.engine.local.warm.shell import GIVEN_LATER, Executed, resolve_shell
from drumline.engine.local.warm.study import check_secrets, check_shadows, credentials, derived, study
from drumline.record import Record
from drumline.runtime.lock import is_locked
from drumline.runtime.order import Descriptors, Order
from drumline.runtime.private import open_file
from drumline.runtime.unix import connect, listen, send_request

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

WARM_FILE = str(Path(__file__).parents[3] / "runtime" / "warm.py")
_LISTENER = 3
AWAITED, ASIDE = "awaited", "aside"  # whether a start waits for a warm process, or goes on beside it
_MOST_UNDER_WAY = 32

READY = "ready"  # in the folder of a warm process, which holds a lock on it while it serves
PREPARING = "the warm process is being made ready"
# Longer than any framework takes to be imported on a busy machine. Whoever waited as long is started by itself.
PATIENCE_SECONDS = 120.0
# So long replicas that start cold import with no warm process beside them. At the lowest priority it slowed four
# replicas of torch on eight cores down by 7 to 11 %.
COME_UP_SECONDS = 5.0
# A warm process that is ready answers in milliseconds. One that is stopped does not answer.
HELLO_SECONDS = 5.0
# A fork takes milliseconds. A warm process that has not answered by then is ended, so that nothing is started twice.
FORK_SECONDS = 30.0
_SIGNALS = tuple(getattr(signal, f"SIG{name}") for name in ("INT", "TERM", "HUP", "QUIT", "PIPE", "XFSZ", "CHLD"))


class Wish(Record):
    """What a replica could be forked from, and what it would become."""

    key: str
    command: Command
    env: Mapping[str, str]  # of the warm process itself
    modules: tuple[str, ...]  # that it has imported, besides the framework
    workdir: str
    executed: Executed


class Kind(Record):
    """What a run's warm processes have imported, and how long they stay when it is over."""

    framework: str
    modules: tuple[str, ...]
    keep_seconds: float
    own: frozenset[str]  # variables that belong to one run or replica
    secrets: frozenset[str] = frozenset()  # variables that no warm process is given


def make_wish(kind: Kind, argv: Sequence[str], env: Mapping[str, str], workdir: str) -> Wish:
    """Say what to fork a replica from; raise NotWarm if it has to be started by itself.

    The warm process outlives the run, so it gets none of the run's secrets. A module that the spec names might read
    one when it is imported: then the replica imports it.
    """
    executed = resolve_shell(argv, env, workdir)
    command = read_command(executed.argv, executed.env, executed.workdir)
    sets = study(command, kind.framework, executed.workdir)
    check_secrets(kind.secrets, kind.framework)
    modules = () if kind.secrets else kind.modules
    left_out = kind.own | kind.secrets | (frozenset() if modules else credentials({**env, **executed.env}))
    left_out |= derived(executed.assigned, lambda name: is_of_one_replica(name, left_out), kind.framework)
    shared = {**shared_environment(executed.env, left_out), **sets}
    key = make_key(command, kind.framework, modules, shared, WARM_FILE)
    return Wish(key, command, shared, modules, executed.workdir, executed)


def warm_folder(home: Path) -> Path:
    """Where the warm processes of a home are to be found, each in a folder of its own."""
    return home / "warm"


class WarmProcesses:
    """The warm processes that one run uses; owns a connection to each."""

    def __init__(self, home: Path, kind: Kind, loop: AbstractEventLoop) -> None:
        self._folder = warm_folder(home)
        self.kind = kind
        self._loop = loop
        self._known: dict[str, _WarmProcess] = {}
        self._later: dict[str, Wish] = {}  # what is to be made ready

    @property
    def pids(self) -> set[int]:
        """Those that this process has begun."""
        return {each.pid for each in self._known.values() if each.pid is not None}

    def is_ready(self, wish: Wish) -> bool:
        """Return whether an answer to `ask` does not wait for an import."""
        process = self._known.get(wish.key)
        if process is None or process.is_gone:
            return serves(self._folder / wish.key)
        return process.is_ready

    def prepare(self, wish: Wish) -> None:
        """Have a warm process made ready at low priority, when the replicas that start now have come up."""
        if wish.key not in self._later:
            self._later[wish.key] = wish
            self._loop.call_later(COME_UP_SECONDS, partial(self._begin, wish.key))

    def ask(self, wish: Wish, ready: Callable[[str], None], *, waits: bool) -> None:
        """Call back when replicas can be forked, with nothing; or with why they cannot.

        Unless it waits, a warm process that turns out not to be ready is a reason.
        """
        self._open(wish, waits=waits).ask(wish, ready)

    def _begin(self, key: str) -> None:
        if wish := self._later.pop(key, None):
            self._open(wish, waits=False)

    def _open(self, wish: Wish, *, waits: bool) -> _WarmProcess:
        process = self._known.get(wish.key)
        if process is None or process.is_gone:
            folder = self._folder / wish.key
            process = self._known[wish.key] = _WarmProcess(folder, self.kind, wish, self._loop, waits=waits)
        process.waits = waits
        return process

    def start(self, wish: Wish, order: Order, descriptors: Descriptors, done: Callable[[int | None], None]) -> None:
        """Have a replica forked; call back with its keeper's pid, or with None if the warm process went away."""
        self._known[wish.key].start(wish, order, descriptors, done)

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

    def __init__(self, folder: Path, kind: Kind, wish: Wish, loop: AbstractEventLoop, *, waits: bool) -> None:
        self._folder = folder
        self._kind = kind
        self._wish = wish
        self._loop = loop
        self._heard = b""
        self._names: frozenset[str] | None = None  # what it has loaded, once it is ready
        self._refused = ""
        self._asking: list[tuple[Wish, Callable[[str], None]]] = []
        self._starting: dict[str, Callable[[int | None], None]] = {}
        self._connection: socket.socket | None = None
        self._tries = 0
        self._process: int | None = None  # a descriptor of the process, once it is ready
        self.pid: int | None = None  # if we began it
        self.waits = waits  # whether a start waits for it while it imports
        self._connect()

    @property
    def is_gone(self) -> bool:
        return self._connection is None and not self._refused

    @property
    def is_ready(self) -> bool:
        """Whether it has answered, or is going to at once; what never comes has answered, too."""
        return self._names is not None or bool(self._refused) or serves(self._folder)

    def ask(self, wish: Wish, ready: Callable[[str], None]) -> None:
        self._asking.append((wish, ready))
        if self._names is not None or self._connection is None or not (self.waits or serves(self._folder)):
            # Later, as it would be for whoever asks first.
            self._loop.call_later(0.0, self._answer)
        elif len(self._asking) == 1:
            self._expect_hello()

    def start(self, wish: Wish, order: Order, descriptors: Descriptors, done: Callable[[int | None], None]) -> None:
        request = {
            "do": "start",
            "name": order.name,
            "held": len(descriptors.held),
            "umask": _umask(),
            "limits": {name: _soft(name) for name in limit_names() if name != "RLIMIT_NOFILE"},
            "affinity": sorted(os.sched_getaffinity(0)),
        }
        while len(self._starting) >= _MOST_UNDER_WAY and self._connection:
            self._hear()  # if both only spoke and nobody listened, both would wait for ever
        if self._connection is None:
            self._loop.call_later(0.0, partial(done, None))
            return
        self._starting[order.name] = done
        self._loop.call_later(FORK_SECONDS, partial(self._expect, order.name, done))
        sealed = seal_order(order, wish)
        try:
            self._send(request, [sealed, *descriptors.listed])
        finally:
            os.close(sealed)

    def close(self) -> None:
        if self._connection:
            self._loop.remove_reader(self._connection.fileno())
            self._connection.close()
            self._connection = None
        if self._process is not None:
            os.close(self._process)
            self._process = None

    def _expect(self, name: str, done: Callable[[int | None], None]) -> None:
        """Lose a warm process that has not answered an order in time."""
        if self._starting.get(name) is done:
            self._lose("the warm process does not answer", gone=True)

    def _expect_hello(self) -> None:
        """Do without a warm process that does not answer in time; nothing is lost while no start waits for it."""
        is_ready = serves(self._folder)

        def check(tries: int) -> None:
            if tries == self._tries and self._asking:
                self._lose(f"the warm process {'does not answer' if is_ready else 'is not ready in time'}")

        self._loop.call_later(HELLO_SECONDS if is_ready else PATIENCE_SECONDS, partial(check, self._tries))

    def _connect(self) -> None:
        self._tries += 1
        try:
            self._connection = connect(self._folder / "socket") or self._begin()
        except OSError as error:
            self._refused = f"no warm process can be started: {error.strerror}"
            return
        self._connection.settimeout(FORK_SECONDS)
        self._heard = b""
        self._loop.add_reader(self._connection.fileno(), self._hear)
        self._send({"do": "hello", "keep": self._kind.keep_seconds}, ())

    def _begin(self) -> socket.socket:
        """Start a warm process, unless somebody else does so at this moment."""
        lock = self._open_lock()
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            connection = connect(self._folder / "socket")
            if connection is None:
                with listen(self._folder / "socket") as listener:
                    # Before it begins: one that has nobody to serve leaves at once.
                    connection = connect(self._folder / "socket")
                    if connection is None:
                        raise ConnectionRefusedError(0, "it does not listen")
                    self.pid = self._spawn(listener)
            return connection
        finally:
            os.close(lock)

    def _open_lock(self) -> int:
        """The lock of whoever begins one here; the last one may be about to leave, and take the folder along."""
        while True:
            for folder in (self._folder.parent, self._folder):
                folder.mkdir(mode=0o700, exist_ok=True)
            _clear(self._folder.parent, self._folder)
            with suppress(FileNotFoundError):
                return open_file(self._folder / "lock", os.O_RDWR | os.O_CREAT)

    def _spawn(self, listener: socket.socket) -> int:
        """Begin it; by fork, since posix_spawn has the C library ignore its own signals, which a script could see."""
        command = self._wish.command
        words = [str(self._folder), self._kind.framework, AWAITED if self.waits else ASIDE, *self._wish.modules]
        argv = [command.interpreter, *command.options, WARM_FILE, *words]
        if pid := os.fork():
            return pid
        try:
            os.setsid()
            listener.listen()  # now it is this process that others find at the other end
            listening = fcntl.fcntl(listener, fcntl.F_DUPFD_CLOEXEC, _LISTENER + 1)
            log = open_file(self._folder / "log", os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
            for descriptor, number in (
                (os.open(os.devnull, os.O_RDONLY), 0),
                (log, 1),
                (log, 2),
                (listening, _LISTENER),
            ):
                os.dup2(descriptor, number)
            for signal_number in _SIGNALS:
                signal.signal(signal_number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            os.execve(command.interpreter, argv, self._wish.env)
        finally:
            os._exit(127)

    def _send(self, request: Mapping[str, Any], descriptors: Sequence[int]) -> None:
        if self._connection is None:
            return
        try:
            send_request(self._connection, request, descriptors)
        except OSError:
            self._loop.call_later(0.0, partial(self._lose, "the warm process has ended", gone=True))

    def _hear(self) -> None:
        if self._connection is None:
            return
        try:
            data = self._connection.recv(1 << 20)
        except OSError:
            data = b""
        if not data and self._names is None and self.pid is None and self._tries == 1:
            self._begin_anew()  # it was about to leave when we came
            return
        if not data:
            self._lose(f"the warm process has ended{self._last_word()}", gone=True)
            return
        *lines, self._heard = (self._heard + data).split(b"\n")
        for line in lines:
            try:
                said = json.loads(line)
                if "keeper" in said:
                    keeper, done = int(said["keeper"]), self._starting.pop(said["name"])
                elif said["changed"]:
                    self._begin_anew()
                    return
                else:
                    refused, names = str(said["unfit"]), frozenset(said["names"])
                    process = os.pidfd_open(said["pid"])
            except (OSError, ValueError, TypeError, LookupError, OverflowError):
                self._lose("the warm process is broken", gone=True)
                return
            if "keeper" in said:
                done(keeper)
                continue
            self._refused, self._names, self._process = refused, names, process
            self._answer()

    def _begin_anew(self) -> None:
        """It leaves; another takes its place."""
        self.close()
        self._connect()
        if self.waits:
            self._expect_hello()
        else:
            self._answer()

    def _answer(self) -> None:
        asking, self._asking = self._asking, []
        for wish, ready in asking:
            ready(self._refused or self._objection(wish))

    def _objection(self, wish: Wish) -> str:
        if self._connection is None:
            return "the warm process has ended"
        if self._names is None:
            return PREPARING
        try:
            check_shadows(wish.command, wish.workdir, self._names)
        except NotWarm as reason:
            return str(reason)
        return ""

    def _lose(self, why: str, *, gone: bool = False) -> None:
        """Do without it, from now on or, if it never was ready, for whoever waits."""
        if self._connection is None or (self._names is not None and not gone):
            return
        if self._starting and self._process is not None:
            with suppress(OSError):  # it has ended; if not, it must not fork what is started here
                signal.pidfd_send_signal(self._process, signal.SIGKILL)
        self.close()
        self._refused = why if self._names is None else ""
        starting, self._starting = self._starting, {}
        for done in starting.values():
            done(None)
        self._answer()

    def _last_word(self) -> str:
        """The last line that a warm process wrote."""
        with suppress(OSError):
            lines = (self._folder / "log").read_text(errors="replace").strip().splitlines()
            return f": {lines[-1][:150]}" if lines else ""
        return ""


def seal_order(order: Order, wish: Wish) -> int:
    """Write an order into a file in memory, and return its descriptor: the fork of the warm process reads it.

    The warm process itself never does: what a process has read, secrets among it, may be in its memory for ever.
    """
    executed = wish.executed
    env = {**executed.env, **{name: order.env[name] for name in GIVEN_LATER if name in order.env}}
    of_command = order._replace(argv=executed.argv, env=env, workdir=executed.workdir)
    script = {"path": wish.command.path, "module": wish.command.module, "shell": executed.parent}
    data = json.dumps({"order": of_command._asdict(), "script": script}).encode()
    sealed = os.memfd_create("drumline-order", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(sealed), "wb") as file:
            file.write(data)
    except OSError:
        os.close(sealed)
        raise
    return sealed


def serves(folder: Path) -> bool:
    """Return whether the warm process of a folder has imported all and answers, unless it is stopped."""
    with suppress(OSError):
        return is_locked(folder / READY)
    return False


def _clear(folder: Path, but: Path) -> None:
    """Remove what warm processes left that have ended."""
    for each in folder.iterdir():
        connection = None if each == but else connect(each / "socket")
        if connection:
            connection.close()
        elif each != but and not is_locked(each / "lock"):
            shutil.rmtree(each, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _soft(name: str) -> int:
    return resource.getrlimit(getattr(resource, name))[0]
