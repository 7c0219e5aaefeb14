"""Prepare a pod before its replica starts: `ready.py PARTS PROJECT RUNTIME` unpacks the project and the runtime.

Then it waits until every name in DRUMLINE_PEERS resolves, since a replica that starts earlier may fail. The supervisor
makes PARTS/begun appear when a replica of the attempt has ended: the name of that replica never resolves again, so the
wait is over too. It runs with any Python 3.6 or newer; `ready.sh` does the same in an image without Python or zlib.
"""

import glob
import io
import os
import signal
import socket
import sys
import tarfile
import time
from collections.abc import Callable, Iterable

try:
    import zlib
except ImportError:  # the shell script does it without Python
    os.environ["DRUMLINE_PYTHON"] = "none"
    os.execvp("sh", ["sh", os.path.join(sys.argv[1], "ready.sh"), *sys.argv[1:4]])

PRINT_SECONDS = 5.0
RETRY_SECONDS = 0.25
MOST_NAMED = 4  # peers that the message names


def unpack(archive: bytes, folder: str) -> None:
    """Unpack a compressed archive into a folder, created if missing; the files belong to this user."""
    os.makedirs(folder, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(archive), encoding="utf-8", errors="surrogateescape") as members:
        for member in members:
            path = os.path.join(folder, member.name)
            if os.path.lexists(path) and not member.isdir():
                os.unlink(path)  # left by an earlier start of the container
            if member.isdir():
                os.makedirs(path, exist_ok=True)
            elif member.issym():
                os.symlink(member.linkname, path)
            else:
                content = members.extractfile(member)
                with open(path, "wb") as file:
                    file.write(content.read() if content else b"")
                os.chmod(path, member.mode)


def _read_parts(folder: str) -> bytes:
    """Return the project's archive, joined from its parts; empty if there is none."""
    whole = b""
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), "project-*"))):
        with open(path, "rb") as file:
            whole += file.read()
    return whole


def is_known(name: str) -> bool:
    """Return whether a name resolves to an address."""
    try:
        socket.getaddrinfo(name, None)
    except (OSError, UnicodeError):
        return False
    return True


def wait_for(
    names: "Iterable[str]",
    has_begun: "Callable[[], bool]",
    known: "Callable[[str], bool]" = is_known,
    now: "Callable[[], float]" = time.monotonic,
    sleep: "Callable[[float], None]" = time.sleep,
) -> None:
    """Wait until all names have resolved once, or `has_begun` returns True; print missing names every few seconds."""
    began = printed = now()
    missing = list(names)
    while True:
        missing = [name for name in missing if not known(name)]
        if not missing or has_begun():
            return
        if now() - printed >= PRINT_SECONDS:
            printed = now()
            more = f" and {len(missing) - MOST_NAMED} more" if len(missing) > MOST_NAMED else ""
            say(f"waiting for {', '.join(missing[:MOST_NAMED])}{more} to resolve, for {printed - began:.0f} s so far")
        sleep(RETRY_SECONDS)


def say(text: str) -> None:
    """Print a line to the pod's log."""
    sys.stdout.write(f"drumline: {text}\n")
    sys.stdout.flush()


def main(parts: str, project: str, runtime: str) -> int:
    """Unpack the project and the runtime, then wait for names; return the exit code."""
    for number in (signal.SIGTERM, signal.SIGINT):  # without a handler, only KILL ends the first process of a pod
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        with open(os.path.join(parts, "runtime.tar.gz"), "rb") as file:
            unpack(file.read(), runtime)
        archive = _read_parts(parts)
        if archive:
            unpack(archive, project)
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        say(f"cannot unpack the project or the runtime: {error}")
        return 1
    begun = os.path.join(parts, "begun")
    wait_for([name for name in os.environ.get("DRUMLINE_PEERS", "").split(",") if name], lambda: os.path.exists(begun))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))
