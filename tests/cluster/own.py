"""A cluster of a test's own, beside the one that tests share: two bare nodes, for what must not happen to others."""

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
    """Where it is, how it is reached, and how parts of it come to an end and back."""

    def __init__(self, folder: Path, inside: int) -> None:
        self.folder = folder
        self.kubeconfig = folder / "admin.conf"
        self.beside = ("nsenter", f"--net=/proc/{inside}/ns/net", "--")  # in its network, and else here
        self._inside = ("nsenter", "-t", str(inside), "-n", "-m", "-p", "--")

    def kill(self, *parts: str) -> None:
        """KILL these of its programs."""
        pids = [(self.folder / "pid" / part).read_text().strip() for part in parts]
        subprocess.run([*self._inside, "kill", "-KILL", *pids], check=True)

    def kill_node(self, number: int) -> None:
        """Have a node die with all that runs on it."""
        self.kill(f"kubelet{number}", f"containerd{number}")
        wait_until(lambda: not self._kill_all(self._pids(number)))

    def begin_again(self, part: str) -> None:
        """Start one of its programs as it was started before."""
        words = (self.folder / "command" / part).read_text()
        script = (
            f"exec setsid {words} >>{self.folder}/log/{part}.log 2>&1 </dev/null & echo $! >{self.folder}/pid/{part}"
        )
        subprocess.run([*self._inside, "bash", "-c", script], check=True)

    def node_log(self, number: int, pod_begins: str) -> bytes:
        """What a container has written by now, as its node keeps it: nobody else has to answer for that."""
        files = sorted((self.folder / f"node{number}" / "pod-logs").glob(f"*{pod_begins}*/replica/*.log"))
        return b"".join(path.read_bytes() for path in files)

    def _kill_all(self, pids: list[str]) -> bool:
        if pids:
            subprocess.run(["kill", "-KILL", *pids], check=False, stderr=subprocess.DEVNULL)
        return bool(pids)

    def _pids(self, number: int) -> list[str]:
        """Whoever runs in a node's containers, by the group that all of them are in."""
        groups = Path("/sys/fs/cgroup")
        groups = groups / "memory" if (groups / "memory").is_dir() else groups
        files = (groups / f"{self.folder.name}-node{number}").rglob("cgroup.procs")
        found = []
        for file in files:
            with suppress(OSError):  # a group that goes while it is looked at has nobody in it
                found += file.read_text().split()
        return found


@contextmanager
def own_cluster() -> Iterator[OwnCluster]:
    """Bring one up for the block; nothing of it is left then."""
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
        assert folder, "it did not come up"
        yield OwnCluster(Path(folder), _inside(process.pid))
    finally:
        process.communicate(timeout=_UP_SECONDS)


def _inside(pid: int) -> int:
    """The first of a chain of processes that is in a world of its own."""
    while Path(f"/proc/{pid}/ns/pid").readlink() == Path("/proc/self/ns/pid").readlink():
        pid = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
    return pid
