"""Lower the priority of a background process for a while."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress

_LOWEST = 19
_TRIES = 5  # the kernel takes one change of a session's priority each tenth of a second, from all users together
_PAUSE_SECONDS = 0.1


def lower_priority() -> Callable[[], None]:
    """Lower the priority of this process as far as this can be undone; return a function that restores it.

    The process must lead a session of its own.
    If the kernel divides the cores by session (autogroup), any process can change the priority of its session.
    Otherwise the nice value counts. Only a privileged process can raise its priority again, so without privileges the
    nice value is not changed.
    """
    before = os.getpriority(os.PRIO_PROCESS, 0)
    _set_session_priority(_LOWEST)
    try:
        os.setpriority(os.PRIO_PROCESS, 0, before - 1)  # a process that may do this may also restore the value later
    except OSError:
        return lambda: _set_session_priority(0)
    os.setpriority(os.PRIO_PROCESS, 0, _LOWEST)

    def restore() -> None:
        os.setpriority(os.PRIO_PROCESS, 0, before)
        _set_session_priority(0)

    return restore


def _set_session_priority(nice: int) -> None:
    if os.getsid(0) != os.getpid():
        raise AssertionError("not in a session of its own")
    for _ in range(_TRIES):
        with suppress(FileNotFoundError):
            try:
                with open("/proc/self/autogroup", "w", encoding="ascii") as group:  # noqa: PTH123
                    group.write(str(nice))
            except BlockingIOError:
                time.sleep(_PAUSE_SECONDS)
                continue
            except OSError:
                pass  # the priority stays as it is
        return
