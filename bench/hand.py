"""Start workers without drumline: the variables that each needs, free ports, and the environments of frameworks."""

from __future__ import annotations

import json
import socket
import subprocess
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).parents[1]


def environment(name: str) -> Path:
    """Return the folder of a framework's environment, built by `scripts/environment`."""
    command = [str(ROOT / "scripts" / "environment"), "--path", name]
    return Path(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())


def typed(framework: str, workers: int) -> list[dict[str, str]]:
    """Return the variables that each worker needs; a single one needs none."""
    if workers == 1:
        return [{}]
    ports = free_ports(workers)
    if framework == "torch":
        world = {"WORLD_SIZE": str(workers), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(ports[0])}
        return [{**world, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(workers)]
    cluster = {"worker": [f"127.0.0.1:{port}" for port in ports]}
    tasks = ({"cluster": cluster, "task": {"type": "worker", "index": index}} for index in range(workers))
    return [{"TF_CONFIG": json.dumps(task)} for task in tasks]


def free_ports(count: int) -> list[int]:
    """Return ports that are free now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
