"""Verbs about a host itself: facts, installed packages, its clock, and whether hosts reach each other.

They need no open run, and write no files except for `write`.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from drumline.engine.local.capacity import find_capacity
from drumline.engine.local.port_owners import find_port_owners
from drumline.plan.codec import to_data
from drumline.runtime import keeper

_PORT_RANGE = "/proc/sys/net/ipv4/ip_local_port_range"  # the ports that the kernel chooses for clients
_PACKAGES = """
import json, sys
from importlib import metadata
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""

Request = Mapping[str, Any]
Answer = dict[str, Any]


def facts(request: Request) -> Answer:
    """Return the resources and the system of this host, and the free bytes of the disk of `folder`."""
    capacity = find_capacity(len(os.sched_getaffinity(0)), os.environ)
    base = os.path.abspath(os.path.expanduser(request["folder"]))
    at = base
    while not os.path.isdir(at):
        at = os.path.dirname(at)
    return {
        "base": base,
        "boot": keeper.boot_id(),
        "python": platform.python_version(),
        "executable": sys.executable,
        "cpus": capacity.cpus,
        "memory_bytes": capacity.memory_bytes,
        "gpus": list(capacity.gpus),
        "free_bytes": shutil.disk_usage(at).free,
        "is_writable": os.access(at, os.W_OK),
    }


def packages(request: Request) -> Answer:
    """Return the versions of packages in a Python, which runs with the user's variables as for a replica."""
    argv = [os.path.expanduser(request["python"] or sys.executable), "-c", _PACKAGES, *request["packages"]]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"error": "EngineError", "message": done.stderr.strip()[-200:]}
    return {"packages": json.loads(done.stdout)}


def clock(request: Request) -> Answer:
    """Return the seconds since the boot of this host, and since 1970 by its clock."""
    del request
    return {"now": keeper.now(), "time": time.time()}


def ports(request: Request) -> Answer:
    """Return the processes that listen on these ports."""
    return {"owners": [to_data(each) for each in find_port_owners(request["ports"])]}


def listen(request: Request) -> Answer:
    """Listen on these ports, or on a free one that a replica could get; send this host's name to each caller."""
    listening: list[int] = []
    taken: list[int] = []
    for port in request["ports"] or [0]:
        server = next(filter(None, map(_serve, [port] if port else _candidates())), None)
        if server is None:
            taken.append(port)
            continue
        listening.append(server.getsockname()[1])
        threading.Thread(target=_answer, args=(server, request["name"]), daemon=True).start()
    return {"ports": listening, "taken": taken}


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
        with open(_PORT_RANGE) as file:
            first, last = map(int, file.read().split())
    except (OSError, ValueError):
        first, last = 32768, 60999
    return [port for port in range(20000, 65536) if not first <= port <= last]


def _answer(server: socket.socket, name: str) -> None:
    while True:
        caller, _ = server.accept()
        with suppress(OSError), caller:
            caller.sendall(name.encode())


def call(request: Request) -> Answer:
    """Connect to all these peers concurrently, each a name, an address and a port; return why each failed, or ""."""
    peers: list[tuple[str, str, int]] = request["peers"]

    def trouble(peer: tuple[str, str, int]) -> str:
        name, address, port = peer
        try:
            with socket.create_connection((address, port), timeout=request["seconds"]) as connection:
                received = connection.recv(1000).decode(errors="replace")
        except TimeoutError:
            return "no answer"
        except OSError as error:
            return (error.strerror or str(error)).lower()
        return "" if received == name else f"another program answers there, {received!r}"

    with ThreadPoolExecutor(min(64, max(1, len(peers)))) as pool:
        return {"troubles": list(pool.map(trouble, peers))}


def write(request: Request) -> Answer:
    """Write a text to a file, and wait until it is on the disk."""
    with open(request["path"], "w") as file:
        file.write(request["text"])
        file.flush()
        os.fsync(file.fileno())
    return {}


def read(request: Request) -> Answer:
    """Return the content of these files once all exist, or after `seconds`; a shared disk may take a while."""
    paths: list[str] = request["paths"]
    ends = time.monotonic() + request["seconds"]
    while True:
        found = {}
        for path in paths:
            with suppress(OSError), open(path) as file:
                found[path] = file.read()
        if len(found) == len(paths) or time.monotonic() > ends:
            return {"found": found}
        with suppress(OSError):  # listing a folder makes NFS refresh its cache
            os.listdir(os.path.dirname(paths[0]))
        time.sleep(0.2)
