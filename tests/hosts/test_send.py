"""Folders are sent through a real sshd: completely or not at all, only changes the second time, with any names."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from drumline.engine.agent.bootstrap import Setup, start_agent
from drumline.engine.agent.client import Agent
from drumline.engine.agent.errors import UnreachableError
from drumline.engine.agent.fetch import fetch
from drumline.engine.agent.send import SentFolder, send_project
from drumline.engine.project.snapshot import take_snapshot
from drumline.engine.ssh.shell import Shell, SshChannel, connect
from drumline.errors import EngineError
from hosts.host_cluster import HOME, HostCluster
from unit.engine.agent.host import listing

T = TypeVar("T")
BASE = "~/base with blanks"
FOLDER = f"{BASE}/runs/u/project"
OVER = "/run/over"  # a file of a host that ends the waiting
PASSED_BYTES = 10_000_000  # the package, two frames with the first 8 MiB, and a part of the third frame
SETUP = Setup("python3", "~/.cache/drumline/hosts", "name another", "make room")


def there(host_cluster: HostCluster, name: str) -> Path:
    return host_cluster.path(name, f"{HOME}/base with blanks/runs/u/project")


def ask(
    host_cluster: HostCluster, name: str, question: Callable[[Agent], Awaitable[T]], kind: type[Shell] = Shell
) -> T:
    async def go() -> T:
        shell = await connect(name, config=str(host_cluster.config))
        shell.__class__ = kind
        try:
            async with await start_agent(shell, SETUP) as agent:
                return await question(agent)
        finally:
            await shell.close()

    return asyncio.run(go())


def send(host_cluster: HostCluster, name: str, project: Path) -> SentFolder:
    return ask(
        host_cluster, name, lambda agent: send_project(agent, take_snapshot(project), FOLDER, store=f"{BASE}/blobs")
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "src/deep").mkdir(parents=True)
    (root / "train.py").write_text("print('hello')\n")
    (root / "src/deep/run.sh").write_text("#!/bin/sh\n")
    (root / "src/deep/run.sh").chmod(0o755)
    (root / "latest").symlink_to("src/deep/run.sh")
    (root / os.fsdecode(b"caf\xe9 'x' $HOME \n")).write_text("odd")
    (root / "model").write_bytes(os.urandom(20_000_000))
    return root


def test_a_project_is_sent_and_later_only_its_changes(host_cluster: HostCluster, project: Path) -> None:
    first = send(host_cluster, "h1", project)
    assert listing(there(host_cluster, "h1")) == listing(project)
    assert first.sent_bytes == first.size_bytes > 20_000_000
    (project / "train.py").write_text("print('hallo')\n")
    again = send(host_cluster, "h1", project)
    assert (again.sent_bytes, again.written) == (15, 1)
    assert listing(there(host_cluster, "h1")) == listing(project)


def test_an_output_is_fetched(host_cluster: HostCluster, project: Path, tmp_path: Path) -> None:
    send(host_cluster, "h2", project)
    here = tmp_path / "here"
    found = ask(host_cluster, "h2", lambda agent: fetch(agent, FOLDER, here, settled=True))
    assert found.is_whole
    assert listing(here) == listing(project)
    assert ask(host_cluster, "h2", lambda agent: fetch(agent, FOLDER, here, settled=True)).taken_bytes == 0


_PASS = f"""
import os, time
left = {PASSED_BYTES}
while left and (data := os.read(0, min(left, 65536))):
    left -= len(data)
    while data:
        data = data[os.write(1, data):]
while not os.path.exists({OVER!r}):
    time.sleep(0.1)
"""


class Cut(Shell):
    """A connection with an sshd that is killed while a large frame is being sent: only a part of it is read.

    The agent's input passes through a command that stops reading within the third frame.
    """

    host_cluster: HostCluster
    frames = 0

    async def open(self, argv: Sequence[str], *, counts: bool = False) -> SshChannel:
        argv = ["sh", "-c", 'python3 -c "$0" | "$@"', _PASS, *argv]
        channel = await super().open(argv, counts=counts)
        write = channel.write

        async def write_frame(data: bytes) -> None:
            Cut.frames += data.startswith(b"{")
            if Cut.frames == 3:
                going = asyncio.ensure_future(write(data))
                await asyncio.sleep(0)
                await asyncio.to_thread(Cut.host_cluster.kill_sshd, self.host)
                await going
            else:
                await write(data)

        channel.write = write_frame  # type: ignore[method-assign]
        return channel


def test_a_host_that_is_disconnected_during_sending_has_no_incomplete_project(
    host_cluster: HostCluster, project: Path
) -> None:
    Cut.host_cluster = host_cluster
    with pytest.raises(UnreachableError, match=r"the connection to h3 broke"):
        ask(
            host_cluster,
            "h3",
            lambda agent: send_project(agent, take_snapshot(project), FOLDER, store=f"{BASE}/blobs"),
            Cut,
        )
    assert Cut.frames == 3
    host_cluster.path("h3", OVER).touch()
    host_cluster.wait_idle("h3")
    assert not there(host_cluster, "h3").exists()
    host_cluster.start_sshd("h3")
    again = send(host_cluster, "h3", project)
    assert 0 < again.sent_bytes < again.size_bytes  # what was sent before is kept
    assert listing(there(host_cluster, "h3")) == listing(project)


def test_a_host_without_space_is_named(project: Path, tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()
    (tmp_path / "small/train.py").write_bytes(b"x" * 100_000)
    with HostCluster(1, disk="8m") as host_cluster:
        with pytest.raises(
            EngineError, match=r"h1 has too little disk space for the project: 40\.0 MB are needed in .*, .* are free"
        ):
            send(host_cluster, "h1", project)
        send(host_cluster, "h1", tmp_path / "small")
        before = listing(there(host_cluster, "h1"))
        host_cluster.fill_disk("h1")
        (tmp_path / "small/train.py").write_bytes(b"y" * 100_000)
        with pytest.raises(EngineError, match=r"h1 has too little disk space|the disk of h1 is full"):
            send(host_cluster, "h1", tmp_path / "small")
        assert listing(there(host_cluster, "h1")) == before
        host_cluster.empty_disk("h1")
        send(host_cluster, "h1", tmp_path / "small")
        assert (there(host_cluster, "h1") / "train.py").read_bytes() == b"y" * 100_000


def test_a_host_without_python_is_named(project: Path) -> None:
    with HostCluster(1) as host_cluster:
        host_cluster.without_python("h1")
        with pytest.raises(EngineError, match=r"h1 has no Python that works as `python3`"):
            send(host_cluster, "h1", project)
