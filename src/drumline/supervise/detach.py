"""Fork the supervisor of a run, and detach it from the terminal."""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from drumline.errors import EngineError
from drumline.run.event import ResumeRequested, StopRequested, SupervisorReturned
from drumline.runtime.keeper import close_all_but
from drumline.store.folder import RunFolder
from drumline.supervise.control import RefreshCopy
from drumline.words import describe_os_error

_THREADS_GONE_SECONDS = 5.0
_MOMENT_SECONDS = 0.001
Asked = StopRequested | ResumeRequested | SupervisorReturned | RefreshCopy


@contextmanager
def held_interrupts() -> Iterator[None]:
    """Block SIGINT (Ctrl-C) inside the `with` statement; one that was sent meanwhile is handled after it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def start_supervisor(folder: RunFolder, *, asked: Asked | None = None) -> bool:
    """Fork a supervisor for a run with the request `asked`, and return True when it holds the run's lock.

    Return False if the run has a supervisor already, which does not get the request, or if the request is refused.
    Raise EngineError if the supervisor fails to start. SIGINT is blocked meanwhile.

    The calling process must have no thread and no running event loop, since the child inherits its state.
    """
    path = folder.path.absolute()
    with held_interrupts():
        word = _fork(path, asked)
    if word not in ("ok", "busy", "refused"):
        raise EngineError(
            f"the supervisor of run {folder.id} could not start: {word or 'it was killed'}",
            hint=f"see {path}/supervisor.log; `drumline supervise {folder.id}` tries again,"
            f" `drumline kill {folder.id}` ends what runs",
        )
    return word == "ok"


def _fork(path: Path, asked: Asked | None) -> str:
    """Fork a supervisor and return its answer; an empty text if it ends without an answer."""
    _wait_threads_gone()
    answers, answer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        if os.fork() == 0:
            _supervise(path, asked, _Answer(answer))
    except OSError as error:
        os.close(answers)
        return describe_os_error(error)
    finally:
        os.close(answer)
    with os.fdopen(answers, "rb") as stream:
        return stream.read().decode()


def _wait_threads_gone() -> None:
    """Return when this process has no other thread, or after a time limit.

    A thread that was joined may still run destructors of libraries; a lock that it holds would stay held in the child.
    """
    until = time.monotonic() + _THREADS_GONE_SECONDS
    with suppress(FileNotFoundError):  # only Linux lists threads in /proc
        while len(os.listdir("/proc/self/task")) > 1 and time.monotonic() < until:  # noqa: PTH208
            time.sleep(_MOMENT_SECONDS)


class _Answer:
    """The supervisor's end of the pipe to the process that forked it. That process may have exited."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._is_open = True

    def send(self, word: str) -> None:
        """Send the answer; only the first one is sent."""
        if self._is_open:
            self._is_open = False
            with suppress(OSError):
                os.write(self.descriptor, word.encode())
            os.close(self.descriptor)


def _supervise(path: Path, asked: Asked | None, answer: _Answer) -> NoReturn:
    """Run as the supervisor of a run, in a new session, and exit."""
    status = 1
    try:
        gc.freeze()  # an object of the command that is collected here would close a descriptor of the supervisor
        os.setsid()
        _close_terminal(answer.descriptor)
        from drumline.supervise.main import supervise  # noqa: PLC0415 - commands that only read a run do not load it

        supervise(path, answer.send, asked=asked)
        status = 0
    except BaseException as error:  # noqa: BLE001
        traceback.print_exc()
        sys.stderr.flush()
        answer.send(describe_os_error(error) if isinstance(error, OSError) else str(error) or type(error).__name__)
    finally:
        os._exit(status)


def _close_terminal(kept: int) -> None:
    """Close every descriptor except `kept`; the standard streams become /dev/null."""
    null = os.open(os.devnull, os.O_RDWR)
    for target in (0, 1, 2):
        os.dup2(null, target)
    close_all_but(kept)
