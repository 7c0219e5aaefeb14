"""Folders travel through a real sshd: quickly again, whole or not at all, whatever they are called."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from drumline.engine.project.carry import Carried, carry
from drumline.engine.project.fetch import fetch
from drumline.engine.project.snapshot import take
from drumline.engine.ssh.refusal import AwayError
from drumline.engine.ssh.shell import Answer, Shell, connect
from drumline.errors import EngineError
from hosts.world import HOME, World
from unit.engine.project.host import listing

T = TypeVar("T")
BASE = "~/base with blanks"
FOLDER = f"{BASE}/runs/u/project"
OVER = "/run/over"  # a file of a host: no more is waited for


def there(world: World, name: str) -> Path:
    return world.path(name, f"{HOME}/base with blanks/runs/u/project")


def ask(world: World, name: str, question: Callable[[Shell], Awaitable[T]]) -> T:
    async def go() -> T:
        shell = await connect(name, config=str(world.config))
        try:
            return await question(shell)
        finally:
            await shell.close()

    return asyncio.run(go())


def send(world: World, name: str, project: Path) -> Carried:
    return ask(world, name, lambda shell: carry(shell, take(project), FOLDER, store=f"{BASE}/blobs"))


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


def test_a_project_comes_there_and_only_what_changed_comes_again(world: World, project: Path) -> None:
    first = send(world, "h1", project)
    assert listing(there(world, "h1")) == listing(project)
    assert first.sent_bytes == first.size_bytes > 20_000_000
    (project / "train.py").write_text("print('hallo')\n")
    again = send(world, "h1", project)
    assert (again.sent_bytes, again.written) == (15, 1)
    assert listing(there(world, "h1")) == listing(project)


def test_an_output_comes_back(world: World, project: Path, tmp_path: Path) -> None:
    send(world, "h2", project)
    here = tmp_path / "here"
    found = ask(world, "h2", lambda shell: fetch(shell, FOLDER, here, settled=True))
    assert found.is_whole
    assert listing(here) == listing(project)
    assert ask(world, "h2", lambda shell: fetch(shell, FOLDER, here, settled=True)).taken_bytes == 0


class Cut(Shell):
    """A connection whose sshd is killed while a large message is on its way: no more than a part of it is read."""

    world: World
    calls = 0

    async def run(
        self, argv: Sequence[str], given: bytes = b"", *, seconds: float = 600.0, most_bytes: int = 1 << 16
    ) -> Answer:
        Cut.calls += 1
        if Cut.calls == 3:
            argv = ["sh", "-c", f'{{ head -c 1000000; until [ -e {OVER} ]; do sleep 0.1; done; }} | "$@"', "sh", *argv]
        going = asyncio.ensure_future(super().run(argv, given, seconds=seconds, most_bytes=most_bytes))
        if Cut.calls == 3:
            await asyncio.sleep(0)
            await asyncio.to_thread(Cut.world.kill_sshd, self.host)
        return await going


def test_a_host_that_is_cut_off_in_the_middle_has_nothing_half(world: World, project: Path) -> None:
    Cut.world = world

    async def go(shell: Shell) -> Carried:
        shell.__class__ = Cut
        return await carry(shell, take(project), FOLDER, store=f"{BASE}/blobs")

    with pytest.raises(AwayError, match=r"the connection to h3 broke"):
        ask(world, "h3", go)
    assert Cut.calls == 3
    world.path("h3", OVER).touch()
    world.wait_idle("h3")
    assert not there(world, "h3").exists()
    world.start_sshd("h3")
    again = send(world, "h3", project)
    assert 0 < again.sent_bytes < again.size_bytes  # what had come before is there
    assert listing(there(world, "h3")) == listing(project)


def test_a_host_without_room_is_named(project: Path, tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()
    (tmp_path / "small/train.py").write_bytes(b"x" * 100_000)
    with World(1, disk="8m") as world:
        with pytest.raises(
            EngineError, match=r"h1 has no room for the project: it takes 40\.0 MB below .*, where .* are free"
        ):
            send(world, "h1", project)
        send(world, "h1", tmp_path / "small")
        before = listing(there(world, "h1"))
        world.fill_disk("h1")
        (tmp_path / "small/train.py").write_bytes(b"y" * 100_000)
        with pytest.raises(EngineError, match=r"h1 has no room|the disk of h1 is full"):
            send(world, "h1", tmp_path / "small")
        assert listing(there(world, "h1")) == before
        world.empty_disk("h1")
        send(world, "h1", tmp_path / "small")
        assert (there(world, "h1") / "train.py").read_bytes() == b"y" * 100_000


def test_a_host_without_python_is_named(project: Path) -> None:
    with World(1) as world:
        world.without_python("h1")
        with pytest.raises(EngineError, match=r"h1 has no `python3`"):
            send(world, "h1", project)
