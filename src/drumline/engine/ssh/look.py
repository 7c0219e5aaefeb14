"""What a doctor runs on a host: it answers questions, a line of JSON each, until nobody asks any more.

It is carried as text, needs nothing but the standard library, and leaves nothing behind.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

_KERNELS_OWN = "/proc/sys/net/ipv4/ip_local_port_range"


def facts(folder: str, packages: list[str]) -> dict[str, object]:
    """What this host is, and what is installed for its Python."""
    from importlib import metadata  # noqa: PLC0415 - only asked once

    found = {}
    for name in packages:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    at = os.path.abspath(os.path.expanduser(folder))
    while not os.path.isdir(at):
        at = os.path.dirname(at)
    usage = shutil.disk_usage(at)
    return {
        "python": sys.executable,
        "packages": found,
        "folder": os.path.expanduser(folder),
        "free": usage.free,
        "writable": os.access(at, os.W_OK),
        "cpus": len(os.sched_getaffinity(0)),
        "memory": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "gpus": count_gpus(),
    }


def count_gpus() -> int:
    """The GPUs that a replica could be given here: as drumline counts them on its own machine."""
    if "DRUMLINE_GPUS" in os.environ:
        return len({name.strip() for name in os.environ["DRUMLINE_GPUS"].split(",")} - {""})
    return len([name for name in os.listdir("/dev") if re.fullmatch("nvidia[0-9]+", name)])


def packages_of(python: str, packages: list[str]) -> dict[str, object]:
    """The same of another Python."""
    import subprocess  # noqa: PLC0415 - few name one

    code = (
        "import json, sys\nfrom importlib import metadata as m\nfound = {}\nfor n in sys.argv[1:]:\n try:"
        " found[n] = m.version(n)\n except m.PackageNotFoundError: pass\nprint(json.dumps(found))"
    )
    done = subprocess.run(
        [os.path.expanduser(python), "-c", code, *packages], capture_output=True, text=True, check=False
    )
    return {"packages": json.loads(done.stdout)} if done.returncode == 0 else {"error": done.stderr.strip()[-200:]}


def listen(name: str, ports: list[int]) -> dict[str, object]:
    """Listen on these ports, or on one that is free where a line would take its own from; tell callers who this is."""
    heard: list[int] = []
    taken: list[int] = []
    for port in ports or [0]:
        server = next(filter(None, map(_serve, [port] if port else _candidates())), None)
        if server is None:
            taken.append(port)
            continue
        heard.append(server.getsockname()[1])
        threading.Thread(target=_answer, args=(server, name), daemon=True).start()
    return {"ports": heard, "taken": taken}


def _serve(port: int) -> socket.socket | None:
    kind = socket.AF_INET6 if socket.has_ipv6 else socket.AF_INET
    try:
        server = socket.socket(kind)
    except OSError:
        server = socket.socket(socket.AF_INET)
    with suppress(OSError, AttributeError):
        server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        server.bind(("", port))
        server.listen(512)
    except OSError:
        server.close()
        return None
    return server


def _candidates() -> list[int]:
    try:
        with open(_KERNELS_OWN) as file:
            first, last = map(int, file.read().split())
    except (OSError, ValueError):
        first, last = 32768, 60999
    return [port for port in range(20000, 65536) if not first <= port <= last]


def _answer(server: socket.socket, name: str) -> None:
    while True:
        caller, _ = server.accept()
        with suppress(OSError), caller:
            caller.sendall(name.encode())


def call(peers: list[tuple[str, str, int]], seconds: float) -> dict[str, object]:
    """Call each of these, name, address and port, all at once; tell what is wrong with whom."""

    def trouble(peer: tuple[str, str, int]) -> str:
        name, address, port = peer
        try:
            with socket.create_connection((address, port), timeout=seconds) as line:
                said = line.recv(1000).decode(errors="replace")
        except TimeoutError:
            return "no answer"
        except OSError as error:
            return (error.strerror or str(error)).lower()
        return "" if said == name else f"somebody else is there, {said!r}"

    with ThreadPoolExecutor(min(64, max(1, len(peers)))) as pool:
        return {"troubles": list(pool.map(trouble, peers))}


def write(path: str, text: str) -> dict[str, object]:
    """Write a file."""
    with open(path, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    return {}


def read(paths: list[str], seconds: float) -> dict[str, object]:
    """What is in these files, once they are all there or so long has passed; a shared disk may take its time."""
    ends = time.monotonic() + seconds
    while True:
        found = {}
        for path in paths:
            with suppress(OSError), open(path) as file:
                found[path] = file.read()
        if len(found) == len(paths) or time.monotonic() > ends:
            return {"found": found}
        with suppress(OSError):  # listing a folder makes NFS look again
            os.listdir(os.path.dirname(paths[0]))
        time.sleep(0.2)


def remove(paths: list[str]) -> dict[str, object]:
    """Remove these files."""
    for path in paths:
        with suppress(OSError):
            os.unlink(path)
    return {}


def clock() -> dict[str, object]:
    """What time it is here."""
    return {"time": time.time()}


_ANSWERS = {each.__name__: each for each in (facts, packages_of, listen, call, write, read, remove, clock)}


def main() -> None:
    """Answer what is asked."""
    print("drumline-look", flush=True)
    for line in sys.stdin:
        question = json.loads(line)
        if question["do"] == "leave":
            return
        try:
            answer = _ANSWERS[question.pop("do")](**question)
        except OSError as error:
            answer = {"error": f"{error.filename or ''}: {error.strerror or error}".lstrip(": ")}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
