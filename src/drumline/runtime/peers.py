"""Says who is not there yet, while TensorFlow waits for everybody without a word: an hour, or for ever.

By a process of its own, since TensorFlow holds the interpreter meanwhile; it ends with the wait, or with whoever waits.
For the same reason it ends whoever waits when both are asked to end: TensorFlow has taken SIGTERM for itself.
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

FIRST_SECONDS, NEXT_SECONDS = 5.0, 60.0  # a line that only starts says nothing
_LOOK_SECONDS = 0.5
_MOST = 4  # are named


@contextmanager
def report_missing_peers(addresses: Mapping[str, str]) -> Iterator[int | None]:
    """While the block runs, say now and then on stderr who of these does not listen; nothing once all do.

    The block is given the number of the process that says it.
    """
    argv = [sys.executable, "-I", "-S", __file__, str(os.getpid()), json.dumps(dict(addresses))]
    try:
        teller = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    except (OSError, ValueError):  # then nobody is named, which must not end a training
        yield None
        return
    try:
        yield teller.pid
    finally:
        with suppress(OSError):
            assert teller.stdin
            teller.stdin.close()
        teller.wait()


def find_missing(addresses: Mapping[str, str]) -> list[str]:
    """Who does not listen, with the address at which that is expected; one more than are named, at most."""
    found: list[str] = []
    for name, address in addresses.items():
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=_LOOK_SECONDS).close()
        except socket.gaierror:
            found.append(f"{name} at {address} (no such host is known here)")
        except (OSError, OverflowError, UnicodeError):
            found.append(f"{name} at {address}")
        if len(found) > _MOST:
            break
    return found


def end(waits: int) -> None:
    """End whoever waits, as SIGTERM would: it has not begun anything."""
    if os.getppid() == waits:  # else it has gone by itself, and our parent is another
        os.kill(waits, signal.SIGKILL)
    sys.exit()


def main() -> None:
    """Say it until stdin is closed."""
    waits, addresses = int(sys.argv[1]), json.loads(sys.argv[2])
    signal.signal(signal.SIGTERM, lambda *_: end(waits))
    pause = FIRST_SECONDS
    while not select.select([sys.stdin], [], [], pause)[0]:
        pause = NEXT_SECONDS
        if missing := find_missing(addresses):
            more = " and others" if len(missing) > _MOST else ""
            sys.stderr.write(f"waiting for {', '.join(missing[:_MOST])}{more}\n")


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
