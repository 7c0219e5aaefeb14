"""Runs in a pod before its replica: `ready.py PARTS PROJECT RUNTIME` unpacks what drumline carried there.

Then it waits until every name in DRUMLINE_PEERS is known, since a replica that starts earlier may die of that; or until
somebody has ended, whose name is gone for good: PARTS/begun says that. It runs alone, by whatever Python from 3.6 on an
image has; `ready.sh` does the same where there is none, or one without zlib.
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
except ImportError:  # then whoever started us has to do without
    os.environ["DRUMLINE_PYTHON"] = "none"
    os.execvp("sh", ["sh", os.path.join(sys.argv[1], "ready.sh"), *sys.argv[1:4]])

SAY_SECONDS = 5.0
LOOK_SECONDS = 0.25
MOST = 4  # are named


def unpack(archive: bytes, folder: str) -> None:
    """Put what is in a compressed archive into a folder, made if it is missing, as whoever we are."""
    os.makedirs(folder, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(archive), encoding="utf-8", errors="surrogateescape") as members:
        for member in members:
            path = os.path.join(folder, member.name)
            if os.path.lexists(path) and not member.isdir():
                os.unlink(path)  # of a container that was started again
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
    """The project's archive, put together again; nothing if none was carried."""
    whole = b""
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), "project-*"))):
        with open(path, "rb") as file:
            whole += file.read()
    return whole


def is_known(name: str) -> bool:
    """Whether a name leads to an address."""
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
    """Wait until all names were known once, or the line has begun without us; say every few seconds which were not."""
    began = told = now()
    missing = list(names)
    while True:
        missing = [name for name in missing if not known(name)]
        if not missing or has_begun():
            return
        if now() - told >= SAY_SECONDS:
            told = now()
            more = f" and {len(missing) - MOST} more" if len(missing) > MOST else ""
            say(f"waiting for {', '.join(missing[:MOST])}{more} to be known, for {told - began:.0f} s so far")
        sleep(LOOK_SECONDS)


def say(text: str) -> None:
    """One line for whoever reads the pod's log."""
    sys.stdout.write(f"drumline: {text}\n")
    sys.stdout.flush()


def main(parts: str, project: str, runtime: str) -> int:
    """Unpack, then wait; return the exit code."""
    for number in (signal.SIGTERM, signal.SIGINT):  # nobody else ends the first process of a pod before KILL
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        with open(os.path.join(parts, "runtime.tar.gz"), "rb") as file:
            unpack(file.read(), runtime)
        carried = _read_parts(parts)
        if carried:
            unpack(carried, project)
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        say(f"cannot unpack what was carried here: {error}")
        return 1
    begun = os.path.join(parts, "begun")
    wait_for([name for name in os.environ.get("DRUMLINE_PEERS", "").split(",") if name], lambda: os.path.exists(begun))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))
