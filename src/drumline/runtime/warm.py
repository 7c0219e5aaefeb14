"""The warm process: imports a framework once, and forks replicas that have it already.

Run as `python [OPTIONS] warm.py FRAMEWORK MODULE…` by the interpreter of an environment, with a listening socket as
descriptor 3. Whoever connects says hello, and then sends one order for each replica, with its open descriptors. A
keeper is forked for each, as a supervisor forks it, and the replica from that: it becomes its script without starting
an interpreter or importing anything. The warm process itself never runs what its user wrote.
"""

from __future__ import annotations

# The main module as Python makes it, before anything else is in it.
_NATIVE = {name: value for name, value in globals().items() if name.startswith("__")}

import sys  # noqa: E402

if __name__ == "__main__" and not getattr(sys.flags, "safe_path", False):
    del sys.path[0]  # our own folder is nothing to import from: it has a `keras` and a `tensorflow` of its own

import gc  # noqa: E402
import importlib.util  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import resource  # noqa: E402
import selectors  # noqa: E402
import signal  # noqa: E402
import socket  # noqa: E402
import struct  # noqa: E402
import time  # noqa: E402
import warnings  # noqa: E402
from importlib.machinery import SourceFileLoader  # noqa: E402
from types import ModuleType  # noqa: E402
from typing import TYPE_CHECKING, Any, NamedTuple  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


LISTENER = 3
HEADER = struct.Struct("!I")
MOST_DESCRIPTORS = 250  # the kernel passes 253 at once

# The threads that are left when a framework has been imported, beside one per core for linear algebra: those of the
# latter are ended before a fork and begun again after it, and nothing of the former has begun to work yet.
OWN_THREADS = {"tensorflow": 2, "torch": 1, "jax": 1, "plain": 0}

# What a framework loads only when it is first used, and what takes its time.
_LATER = {
    "tensorflow": ("keras",),
    "torch": ("torch.distributed", "torch.nn.parallel", "torch.optim", "torch.utils.data", "torch._dynamo"),
    "jax": ("jax.numpy",),
    "plain": (),
}

_TICK_SECONDS = 10.0
_LEAST_MEMORY = 0.05  # of all; with less to be had, what is only convenient goes
_LONGEST_CHATTER = 65536


class Unfit(Exception):  # noqa: N818
    """No replica that is forked from here would be as one that is started by itself; says why."""


class Script(NamedTuple):
    """What a replica is to run: a file, or a module by its name."""

    path: str
    module: str


def load_keeper() -> ModuleType:
    """The keeper, from the file beside this one; an environment need not have drumline."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "keeper.py")  # noqa: PTH118, PTH120, PTH100
    spec = importlib.util.spec_from_file_location("drumline_keeper", path)
    if spec is None or spec.loader is None:
        raise AssertionError(path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def warm_up(framework: str, modules: Sequence[str]) -> None:
    """Import a framework and what it is used with; raise Unfit if the environment does not have it."""
    try:
        if framework != "plain":
            importlib.import_module(framework)
        for name in _LATER[framework]:
            if importlib.util.find_spec(name):
                importlib.import_module(name)
        for name in modules:
            importlib.import_module(name)
    except Exception as error:  # noqa: BLE001 - whatever a package may raise
        raise Unfit(f"{type(error).__name__}: {error}"[:200]) from None
    check_threads(framework, len(os.listdir("/proc/self/task")))  # noqa: PTH208
    check_origins(sys.modules)


def check_threads(framework: str, found: int) -> None:
    """Refuse to fork what has more threads than the framework is known to leave: nobody knows what they hold."""
    known = 1 + OWN_THREADS[framework] + (os.cpu_count() or 1) - 1
    if found > known:
        raise Unfit(f"importing {framework} leaves {found} threads, and {known} are known")


def check_origins(modules: Mapping[str, ModuleType]) -> None:
    """Refuse whatever does not come with the environment: it may change with every run, or look at who it is."""
    homes = {os.path.realpath(each) for each in (sys.prefix, sys.base_prefix, sys.exec_prefix, *_site_folders())}
    for name, module in list(modules.items()):
        file = getattr(module, "__file__", None)
        if name in ("__main__", "__mp_main__") or not isinstance(file, str) or not os.path.isabs(file):  # noqa: PTH117
            continue
        real = os.path.realpath(file)
        if name in ("sitecustomize", "usercustomize") and not real.startswith(f"{os.path.realpath(sys.base_prefix)}/"):
            raise Unfit(f"a {name} of its own, {file}")
        if not any(real.startswith(f"{home}/") for home in homes):
            raise Unfit(f"{name} is imported from {file}, which is not the environment's")


def _site_folders() -> list[str]:
    import site  # noqa: PLC0415 - with -S there is none to ask

    return [*site.getsitepackages(), site.getusersitepackages(), os.path.dirname(os.__file__)]  # noqa: PTH120


class Files:
    """The files of every module that was imported, as they were then."""

    def __init__(self) -> None:
        names = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
        self._known = {name: _stamp(name) for name in names if isinstance(name, str)}

    def changed(self) -> str:
        """The first that is not as it was, if any."""
        return next((name for name, stamp in self._known.items() if _stamp(name) != stamp), "")


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


class WarmProcess:
    """Serves whoever connects; owns the listening socket and every connection."""

    def __init__(self, listener: socket.socket, framework: str, unfit: str, chatter: bytes) -> None:
        self._listener = listener
        self._framework = framework
        self._unfit = unfit
        self._chatter = chatter
        self._keeper: Any = load_keeper()
        self._files = Files()
        self._names = sorted({name.partition(".")[0] for name in sys.modules})
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)
        self._connections: set[socket.socket] = set()
        self._keep_seconds = 0.0
        self._idle_since = time.monotonic()
        self._began = time.time()
        self._begun = 0  # replicas

    def serve(self) -> Script:
        """Serve until nobody wants it any more; returns only in a replica, with what that is to run."""
        while True:
            for key, _ in self._selector.select(self._patience()):
                if key.fileobj is self._listener:
                    self._greet()
                else:
                    script = self._answer(key.fileobj)
                    if script:
                        return script
            if self._is_over():
                self._leave()

    def _patience(self) -> float:
        if self._connections:
            return _TICK_SECONDS
        return max(0.0, min(_TICK_SECONDS, self._idle_since + self._keep_seconds - time.monotonic()))

    def _is_over(self) -> bool:
        idle = not self._connections and time.monotonic() >= self._idle_since + self._keep_seconds
        return idle or is_memory_short()

    def _leave(self) -> None:
        os._exit(0)  # nothing here was ever used, so there is nothing to tidy up

    def _greet(self) -> None:
        connection, _ = self._listener.accept()
        if peer_of(connection) not in (os.geteuid(), 0):
            connection.close()
            return
        connection.settimeout(10.0)  # whoever writes half a request is not waited for
        self._connections.add(connection)
        self._selector.register(connection, selectors.EVENT_READ)

    def _answer(self, connection: Any) -> Script | None:
        try:
            request, descriptors = receive(connection)
        except (OSError, ValueError):
            self._forget(connection)
            return None
        try:
            match request["do"]:
                case "hello":
                    self._hello(connection, request)
                case "start":
                    return self._start(connection, request, descriptors)
                case "status":
                    self._send(connection, self._status())
                case "stop":
                    self._send(connection, {"pid": os.getpid()})
                    self._leave()
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        return None

    def _hello(self, connection: socket.socket, request: Mapping[str, Any]) -> None:
        """Say what is here; whoever finds that the environment has changed finds nobody the next time."""
        changed = self._files.changed()
        self._keep_seconds = request["keep"]
        self._send(connection, {"pid": os.getpid(), "unfit": self._unfit, "changed": changed, "names": self._names})
        if changed:
            self._leave()

    def _status(self) -> dict[str, Any]:
        return {
            "pid": os.getpid(),
            "framework": self._framework,
            "python": sys.executable,
            "unfit": self._unfit,
            "began": self._began,
            "replicas": self._begun,
            "runs": len(self._connections) - 1,
            "keep": self._keep_seconds,
            "modules": len(sys.modules),
        }

    def _start(self, connection: socket.socket, request: Mapping[str, Any], descriptors: list[int]) -> Script | None:
        order = self._keeper.Order(**request["order"])
        script = Script(**request["script"])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the threads, which were counted
            pid = os.fork()
        if pid:
            self._begun += 1
            self._send(connection, {"name": order.name, "keeper": pid})
            return None
        self._let_go()
        trace, log, news, *others = descriptors
        held = others[: request["held"]]
        hands = self._keeper.Hands(trace, log, news, held, others[request["held"] :])
        descriptors.clear()  # they are the keeper's
        os.umask(request["umask"])
        for name, soft in request["limits"].items():
            number = getattr(resource, name)
            resource.setrlimit(number, (soft, resource.getrlimit(number)[1]))
        os.sched_setaffinity(0, request["affinity"])
        self._keeper.keep(order, hands, become=lambda argv, env: self._become(script, argv, env))
        return script

    def _let_go(self) -> None:
        """Close whatever is the warm process's alone."""
        for connection in (self._listener, *self._connections):
            connection.close()
        self._selector.close()

    def _become(self, script: Script, argv: Sequence[str], env: Mapping[str, str]) -> None:
        """Make this fork what Python makes of itself before it runs a script."""
        os.environ.clear()
        os.environ.update(env)
        time.tzset()
        show_as(argv, env)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_IGN)
        if self._chatter:
            os.write(2, self._chatter)  # what importing says, it says once for each
        forget_the_past()
        sys.orig_argv = list(argv)
        sys.argv = [*argv[argv.index(script.module or script.path) :]]
        if script.module:
            sys.argv[0] = "-m"
        if not getattr(sys.flags, "safe_path", False):
            here = os.path.dirname(os.path.realpath(script.path))  # noqa: PTH120
            sys.path.insert(0, os.getcwd() if script.module else here)  # noqa: PTH109
        gc.enable()

    def _send(self, connection: socket.socket, answer: Mapping[str, Any]) -> None:
        try:
            connection.sendall(json.dumps(answer).encode() + b"\n")
        except OSError:
            self._forget(connection)

    def _forget(self, connection: socket.socket) -> None:
        if connection in self._connections:
            self._connections.remove(connection)
            self._selector.unregister(connection)
            connection.close()
            self._idle_since = time.monotonic()


def receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Read one request and the descriptors that came with it; raise ConnectionError when there will be no more."""
    data, descriptors, _, _ = socket.recv_fds(connection, HEADER.size, MOST_DESCRIPTORS)
    try:
        (length,) = HEADER.unpack(data + _exactly(connection, HEADER.size - len(data)))
        request: dict[str, Any] = json.loads(_exactly(connection, length))
    except BaseException:
        for descriptor in descriptors:
            os.close(descriptor)
        raise
    return request, list(descriptors)


def _exactly(connection: socket.socket, length: int) -> bytes:
    pieces = []
    while length:
        piece = connection.recv(min(length, 1 << 20))
        if not piece:
            raise ConnectionError
        pieces.append(piece)
        length -= len(piece)
    return b"".join(pieces)


def peer_of(connection: socket.socket) -> int | None:
    """The user at the other end."""
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    _, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(uid)


def is_memory_short(path: str = "/proc/meminfo") -> bool:
    """Whether others need the memory more."""
    try:
        with open(path, encoding="ascii") as stream:  # noqa: PTH123
            sizes = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in stream)}
    except (OSError, ValueError, IndexError):
        return False
    return sizes.get("MemAvailable", 1) < sizes.get("MemTotal", 0) * _LEAST_MEMORY


def forget_the_past() -> None:
    """Have what modules noted when they were imported be as if that were now: chance, time and place."""
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None:
        processes.ORIGINAL_DIR = os.path.abspath(os.getcwd())  # type: ignore[attr-defined]  # noqa: PTH100, PTH109
        processes.current_process().authkey = os.urandom(32)
    logging = sys.modules.get("logging")
    if logging is not None:
        logging._startTime = time.time()  # type: ignore[attr-defined]  # noqa: SLF001


def show_as(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """Let `ps` and whoever else looks at this process see its command and environment; in vain where it cannot be."""
    import ctypes  # noqa: PLC0415
    from contextlib import suppress  # noqa: PLC0415

    global _shown  # noqa: PLW0603 - the kernel reads it for as long as this process lives
    words = b"".join(os.fsencode(word) + b"\0" for word in argv)
    variables = b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in env.items())
    with suppress(OSError, ValueError, AttributeError):
        _shown = ctypes.create_string_buffer(words + variables)
        with open("/proc/self/stat", encoding="utf-8", errors="replace") as stream:  # noqa: PTH123
            fields = [0, 0, 0, *stream.read().rpartition(")")[2].split()]
        libc = ctypes.CDLL(None)
        libc.sbrk.restype = ctypes.c_void_p
        begin = ctypes.addressof(_shown)
        middle, end = begin + len(words), begin + len(words) + len(variables)
        code, data, stack = (fields[26], fields[27]), (fields[45], fields[46]), fields[28]
        addresses = [*code, *data, fields[47], libc.sbrk(0), stack, begin, middle, middle, end, 0]
        known = struct.pack("=12QII", *map(int, addresses), 0, 0xFFFFFFFF)
        libc.prctl(35, 14, known, len(known), 0)  # PR_SET_MM, PR_SET_MM_MAP


_shown: Any = None


def main_module(script: Script) -> ModuleType:
    """A main module as Python makes it for a script."""
    module = ModuleType("__main__")
    module.__dict__.clear()
    module.__dict__.update(_NATIVE, __doc__=None)
    if "__annotations__" in _NATIVE:
        module.__annotations__ = {}
    if not script.module:
        path = os.path.join(os.getcwd(), script.path)  # noqa: PTH109, PTH118
        module.__file__ = path
        module.__loader__ = SourceFileLoader("__main__", path)
    return module


def without_our_frame(hook: Callable[..., object]) -> Callable[..., object]:
    """A hook for the last exception that shows it as if the script had been at the bottom."""

    def show(kind: Any, error: BaseException, trace: Any) -> None:
        sys.excepthook = hook
        trace = trace and trace.tb_next
        sys.last_traceback = trace
        hook(kind, error.with_traceback(trace), trace)

    return show


def start(framework: str, modules: Sequence[str]) -> Script:
    """Be a warm process; returns only in a replica."""
    os.chdir("/")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers are nobody's to wait for
    listener = socket.socket(fileno=LISTENER)
    unfit = ""
    try:
        warm_up(framework, modules)
    except Unfit as reason:
        unfit = str(reason)
    sys.stdout.flush()
    sys.stderr.flush()
    gc.collect()
    gc.freeze()  # a collector that walks over what was imported would make everybody's own copy of it
    gc.disable()
    return WarmProcess(listener, framework, unfit, _chatter()).serve()


def _chatter() -> bytes:
    """What importing has said: the end of the file that is our output."""
    try:
        with open("/proc/self/fd/2", "rb") as said:  # noqa: PTH123
            return said.read(_LONGEST_CHATTER)
    except OSError:
        return b""


if __name__ == "__main__":
    _script = start(sys.argv[1], sys.argv[2:])
    sys.modules["__main__"] = _main = main_module(_script)
    try:
        if _script.module:
            import runpy

            runpy._run_module_as_main(_script.module)  # type: ignore[attr-defined]  # noqa: SLF001
        else:
            with open(_script.path, "rb") as _source:  # noqa: PTH123
                _code = _source.read()
            exec(compile(_code, str(_main.__file__), "exec", dont_inherit=True), _main.__dict__)
    except BaseException:
        sys.excepthook = without_our_frame(sys.excepthook)
        raise
