"""The warm process: it imports a framework once, and forks replicas from itself, which need no import.

Run as `python [OPTIONS] warm.py DESCRIPTOR FOLDER FRAMEWORK foreground|background MODULE…` by the interpreter of an
environment. DESCRIPTOR is a socket that listens in FOLDER. With `background`, it imports at low priority. After the
imports it locks the file `ready` in FOLDER. A supervisor connects, sends `hello`, and then one order for each replica,
with open descriptors. For each order the warm process forks a keeper, and the keeper forks the replica, which runs its
script without starting an interpreter or importing the framework. The warm process itself never runs the user's code.
"""

from __future__ import annotations

# The attributes of a main module before anything is added.
_NATIVE = {name: value for name, value in globals().items() if name.startswith("__")}

import sys  # noqa: E402

if __name__ == "__main__" and not getattr(sys.flags, "safe_path", False):
    del sys.path[0]  # nothing must be imported from this folder: it has modules `keras` and `tensorflow`

import fcntl  # noqa: E402
import gc  # noqa: E402
import importlib.util  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import selectors  # noqa: E402
import signal  # noqa: E402
import socket  # noqa: E402
import time  # noqa: E402
from collections.abc import Mapping, Sequence  # noqa: E402
from contextlib import suppress  # noqa: E402
from functools import partial  # noqa: E402
from types import ModuleType  # noqa: E402
from typing import TYPE_CHECKING, Any, NoReturn  # noqa: E402


def _load(name: str) -> ModuleType:
    """Load a module from the file beside this one: the environment may lack drumline."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{name}.py")  # noqa: PTH100, PTH118, PTH120
    spec = importlib.util.spec_from_file_location(f"drumline.runtime.{name}", path)
    if spec is None or spec.loader is None:
        raise AssertionError(path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if TYPE_CHECKING:
    from drumline.runtime import keeper, order, priority, randomness, unix, warm_fork, warm_imports
else:
    keeper, order, priority, randomness = map(_load, ("keeper", "order", "priority", "randomness"))
    unix, warm_fork, warm_imports = map(_load, ("unix", "warm_fork", "warm_imports"))


_TICK_SECONDS = 10.0
_REQUEST_SECONDS = 10.0
_LONGEST_OUTPUT = 65536
_RETRY_SECONDS = 0.1


class WarmProcess:
    """Serves supervisors; owns the listening socket and every connection."""

    def __init__(
        self,
        folder: str,
        listener: socket.socket,
        framework: str,
        modules: Sequence[str],
        unfit: str,
        import_output: bytes,
        generators: randomness.Generators,
        variables: Mapping[str, tuple[str | None, str | None]],
    ) -> None:
        self._folder = folder
        self._listener = listener
        self._framework = framework
        self._modules = modules
        self._unfit = unfit
        self._import_output = import_output
        self._generators = generators
        self._variables = variables
        self._files = warm_imports.LoadedFiles()
        self._names = sorted({name.partition(".")[0] for name in sys.modules}.difference(sys.builtin_module_names))
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)
        self._connections: set[socket.socket] = set()
        self._runs: set[socket.socket] = set()  # connections that sent `hello`
        self._keep_seconds = 0.0
        self._idle_since = time.monotonic()
        self._began = time.time()
        self._begun = 0  # number of forked replicas
        self._ready = _lock_ready(folder)

    def serve(self) -> warm_fork.Script:
        """Serve until this process is no longer needed; return only in a replica, with the script that it runs."""
        while True:
            for key, _ in self._selector.select(self._timeout()):
                if key.fileobj is self._listener:
                    self._accept()
                elif script := self._answer(key.fileobj):
                    return script
            if self._is_over():
                self._exit()

    def _timeout(self) -> float:
        if self._connections:
            return _TICK_SECONDS
        return max(0.0, min(_TICK_SECONDS, self._idle_since + self._keep_seconds - time.monotonic()))

    def _is_over(self) -> bool:
        idle = not self._connections and time.monotonic() >= self._idle_since + self._keep_seconds
        found = os.path.exists(f"{self._folder}/socket")  # noqa: PTH110
        return idle or not found or warm_imports.is_memory_short()

    def _exit(self, connection: socket.socket | None = None, answer: Mapping[str, Any] | None = None) -> NoReturn:
        """Remove the folder, send this answer, and end the process; the next supervisor starts another one."""
        _remove(self._folder)
        if connection and answer:
            self._send(connection, answer)
        os._exit(0)  # without exit handlers, since no user code was run

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:  # no descriptor is free until a connection is closed
            time.sleep(_RETRY_SECONDS)
            return
        if not unix.is_trusted(connection):
            connection.close()
            return
        connection.settimeout(_REQUEST_SECONDS)
        self._connections.add(connection)
        self._selector.register(connection, selectors.EVENT_READ)

    def _answer(self, connection: Any) -> warm_fork.Script | None:
        try:
            request, descriptors = unix.receive_request(connection, order.MOST_DESCRIPTORS)
        except (OSError, *order.MALFORMED):
            self._close_connection(connection)
            return None
        try:
            if request.get("do") == "hello":
                self._hello(connection, request)
            elif request.get("do") == "start":
                return self._start(connection, request, descriptors)
            elif request.get("do") == "status":
                self._send(connection, self._status())
            elif request.get("do") == "stop":
                self._exit(connection, {"pid": os.getpid()})
        except order.MALFORMED:
            self._close_connection(connection)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        return None

    def _hello(self, connection: socket.socket, request: Mapping[str, Any]) -> None:
        """Answer with the loaded modules; then end if a file of the environment has changed since the import."""
        changed = self._files.changed()
        self._keep_seconds = float(request["keep"])
        self._runs.add(connection)
        answer = {"pid": os.getpid(), "unfit": self._unfit, "changed": changed, "names": self._names}
        if changed:
            self._exit(connection, answer)
        self._send(connection, answer)

    def _status(self) -> dict[str, Any]:
        return {
            "pid": os.getpid(),
            "framework": self._framework,
            "modules": self._modules,
            "python": sys.executable,
            "unfit": self._unfit,
            "began": self._began,
            "replicas": self._begun,
            "runs": len(self._runs),
            "keep": self._keep_seconds,
        }

    def _start(
        self, connection: socket.socket, request: Mapping[str, Any], descriptors: list[int]
    ) -> warm_fork.Script | None:
        scripts: list[warm_fork.Script] = []

        def keep(ordered: order.Order, given: order.Descriptors, sent: Mapping[str, Any]) -> None:
            script = warm_fork.Script(**sent["script"])
            keeper.keep(ordered, given, become=partial(self._become, script))
            scripts.append(script)

        if answer := order.fork_keeper(request, descriptors, release=self._close_own, keep=keep):
            self._begun += "keeper" in answer
            self._send(connection, answer)
            return None
        if self._import_output:
            os.write(2, self._import_output)  # each replica prints what the imports printed
        return scripts[0]

    def _become(self, script: warm_fork.Script, argv: Sequence[str], env: Mapping[str, str]) -> None:
        warm_fork.set_up(script, argv, env)
        for name, (before, after) in self._variables.items():
            if env.get(name) != before:
                continue  # the replica has another value than the import had
            if after is None:
                del os.environ[name]
            else:
                os.environ[name] = after
        randomness.reseed(self._generators)

    def _close_own(self) -> None:
        """Close the descriptors that only the warm process needs."""
        for connection in (self._listener, *self._connections):
            connection.close()
        if self._ready is not None:
            os.close(self._ready)
        self._selector.close()

    def _send(self, connection: socket.socket, answer: Mapping[str, Any]) -> None:
        try:
            connection.sendall(json.dumps(answer).encode() + b"\n")
        except OSError:
            self._close_connection(connection)

    def _close_connection(self, connection: socket.socket) -> None:
        if connection in self._connections:
            self._connections.remove(connection)
            self._runs.discard(connection)
            self._selector.unregister(connection)
            connection.close()
            self._idle_since = time.monotonic()


def start(
    descriptor: int, folder: str, framework: str, modules: Sequence[str], *, in_background: bool
) -> warm_fork.Script:
    """Run as a warm process; return only in a replica."""
    os.chdir("/")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the supervisor watches keepers; this process reaps none
    listener = socket.socket(fileno=descriptor)
    listener.listen(64)
    if warm_imports.is_memory_short():
        _remove(folder)
        os._exit(0)
    restore_priority = priority.lower_priority() if in_background else lambda: None
    unfit, generators = "", randomness.Generators(())
    before, variables = randomness.seed_random(), dict(os.environ)
    gc.disable()  # imported objects stay; collecting takes a sixth of the import time
    try:
        warm_imports.import_modules(framework, modules)
        generators = randomness.find_generators(before)
        unfit = generators.problem
    except warm_imports.Unforkable as reason:
        unfit = str(reason)
    sys.stdout.flush()
    sys.stderr.flush()
    gc.freeze()  # a collection in a fork would copy the shared memory
    warm_imports.release_code_pages()
    restore_priority()
    return WarmProcess(
        folder, listener, framework, modules, unfit, _import_output(), generators, _changed(variables)
    ).serve()


def _lock_ready(folder: str) -> int | None:
    """Create and lock the file `ready`; return None if it cannot be written."""
    try:
        ready = os.open(f"{folder}/ready", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(ready, fcntl.LOCK_EX)
    except OSError:
        return None
    return ready


def _remove(folder: str) -> None:
    """Remove the folder of a warm process that ends."""
    for name in ("socket", "ready", "log", "lock"):
        with suppress(OSError):
            os.unlink(f"{folder}/{name}")  # noqa: PTH108
    with suppress(OSError):
        os.rmdir(folder)  # noqa: PTH106


def _changed(before: Mapping[str, str]) -> dict[str, tuple[str | None, str | None]]:
    """Return the variables that the imports have set or removed, each with its value before and now."""
    found = {name: (before.get(name), os.environ.get(name)) for name in {*before, *os.environ}}
    return {name: values for name, values in found.items() if values[0] != values[1]}


def _import_output() -> bytes:
    """Return the output of the imports, which is in the file that is stderr."""
    with open("/proc/self/fd/2", "rb") as output:  # noqa: PTH123
        return output.read(_LONGEST_OUTPUT)


if __name__ == "__main__":
    _script = start(int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[5:], in_background=sys.argv[4] == "background")
    _main = warm_fork.main_module(_script, _NATIVE)
    for _name in [name for name, module in sys.modules.items() if module is sys.modules["__main__"]]:
        sys.modules[_name] = _main  # multiprocessing uses a second name
    try:
        if _script.module:
            import runpy

            runpy._run_module_as_main(_script.module)  # type: ignore[attr-defined]  # noqa: SLF001
        else:
            with open(_script.path, "rb") as _source:  # noqa: PTH123
                _text = _source.read()
            exec(compile(_text, str(_main.__file__), "exec", dont_inherit=True), _main.__dict__)
    except BaseException:
        sys.excepthook = warm_fork.hide_own_frame(sys.excepthook)
        raise
