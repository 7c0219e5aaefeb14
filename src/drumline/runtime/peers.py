"""Report missing peers while TensorFlow waits for all of them without a message.

A child process prints the reports, since TensorFlow blocks the interpreter meanwhile. The child ends when the wait or
its parent ends. On SIGTERM it kills its parent, since TensorFlow handles SIGTERM itself.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

FIRST_SECONDS, NEXT_SECONDS = 5.0, 60.0  # nothing is printed during a normal start
_CONNECT_SECONDS = 0.5
_MOST_NAMED = 4  # peers that a report names


@contextmanager
def report_missing_peers(addresses: Mapping[str, str]) -> Iterator[int | None]:
    """During the block, print on stderr from time to time which of these peers do not listen.

    Yield the pid of the child that prints this; None if it could not be started.
    """
    argv = [sys.executable, "-I", "-S", __file__, str(os.getpid()), json.dumps(dict(addresses))]
    try:
        child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    except (OSError, ValueError):  # missing reports must not end the training
        yield None
        return
    try:
        yield child.pid
    finally:
        with suppress(OSError):
            assert child.stdin
            child.stdin.close()
        child.wait()


def find_missing(addresses: Mapping[str, str]) -> list[str]:
    """Return the peers that do not listen, with their addresses; stop when there are more than a report names."""
    found: list[str] = []
    for name, address in addresses.items():
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS).close()
        except socket.gaierror:
            found.append(f"{name} at {address} (unknown host)")
        except (OSError, OverflowError, UnicodeError):
            found.append(f"{name} at {address}")
        if len(found) > _MOST_NAMED:
            break
    return found


def end(parent: int) -> None:
    """Kill the waiting parent, as SIGTERM would by default, and exit; its training has not begun."""
    if os.getppid() == parent:  # otherwise the parent has ended
        os.kill(parent, signal.SIGKILL)
    sys.exit()


def main() -> None:
    """Print missing peers until stdin is closed."""
    parent, addresses = int(sys.argv[1]), json.loads(sys.argv[2])
    signal.signal(signal.SIGTERM, lambda *_: end(parent))
    pause = FIRST_SECONDS
    while not select.select([sys.stdin], [], [], pause)[0]:
        pause = NEXT_SECONDS
        if missing := find_missing(addresses):
            more = " and others" if len(missing) > _MOST_NAMED else ""
            sys.stderr.write(f"waiting for {', '.join(missing[:_MOST_NAMED])}{more}\n")


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
