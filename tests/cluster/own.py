"""A cluster for one test, beside the shared one: two bare nodes, for faults that must not affect other tests."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from scaffold.waiting import wait_until

_SCRIPT = Path(__file__).parents[2] / "scripts" / "cluster" / "run"
_UP_SECONDS = 300.0


class OwnCluster:
    """A cluster with programs that can be killed and started again."""

    def __init__(self, folder: Path, inside: int) -> None:
        self.folder = folder
        self.kubeconfig = folder / "admin.conf"
        self.namespace_prefix = ("nsenter", f"--net=/proc/{inside}/ns/net", "--")  # in its network namespace only
        self._inside = ("nsenter", "-t", str(inside), "-n", "-m", "-p", "--")

    def kill(self, *parts: str) -> None:
        """Send SIGKILL to these of its programs."""
        pids = [(self.folder / "pid" / part).read_text().strip() for part in parts]
        subprocess.run([*self._inside, "kill", "-KILL", *pids], check=True)

    def kill_node(self, number: int) -> None:
        """Kill a node with all its processes."""
        self.kill(f"kubelet{number}", f"containerd{number}")
        wait_until(lambda: not self._kill_all(self._pids(number)))

    def restart(self, part: str) -> None:
        """Start one of its programs with the same command again."""
        words = (self.folder / "command" / part).read_text()
        script = (
            f"exec setsid {words} >>{self.folder}/log/{part}.log 2>&1 </dev/null & echo $! >{self.folder}/pid/{part}"
        )
        subprocess.run([*self._inside, "bash", "-c", script], check=True)

    def node_log(self, number: int, pod_begins: str) -> bytes:
        """Return the log of a container so far, from the node's file, which needs no server."""
        files = sorted((self.folder / f"node{number}" / "pod-logs").glob(f"*{pod_begins}*/replica/*.log"))
        return b"".join(path.read_bytes() for path in files)

    def _kill_all(self, pids: list[str]) -> bool:
        if pids:
            subprocess.run(["kill", "-KILL", *pids], check=False, stderr=subprocess.DEVNULL)
        return bool(pids)

    def _pids(self, number: int) -> list[str]:
        """Return the pids in a node's containers, from the cgroup of the node."""
        groups = Path("/sys/fs/cgroup")
        groups = groups / "memory" if (groups / "memory").is_dir() else groups
        files = (groups / f"{self.folder.name}-node{number}").rglob("cgroup.procs")
        found = []
        for file in files:
            with suppress(OSError):  # a cgroup that is removed meanwhile has no process
                found += file.read_text().split()
        return found


@contextmanager
def own_cluster() -> Iterator[OwnCluster]:
    """Run a cluster for the block; nothing of it is left afterwards."""
    env = {name: value for name, value in os.environ.items() if name not in ("DRUMLINE_CLUSTER", "KUBECONFIG")}
    process = subprocess.Popen(
        [_SCRIPT, "sh", "-c", 'echo "$DRUMLINE_CLUSTER"; exec cat'],
        env={**env, "DRUMLINE_CLUSTER_BARE": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin
    assert process.stdout
    try:
        folder = process.stdout.readline().strip()
        assert folder, "the cluster did not start"
        yield OwnCluster(Path(folder), _inside(process.pid))
    finally:
        process.communicate(timeout=_UP_SECONDS)


def _inside(pid: int) -> int:
    """Return the first process of a chain of children that is in its own pid namespace."""
    while Path(f"/proc/{pid}/ns/pid").readlink() == Path("/proc/self/ns/pid").readlink():
        pid = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
    return pid
