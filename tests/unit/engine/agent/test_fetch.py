"""Fetching the output of a run from a host: only new files, in the order of writing, and each completely."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import pytest

from drumline.engine.agent import fetch as fetching
from drumline.engine.agent.answers import Done
from drumline.engine.agent.client import Agent
from drumline.engine.agent.fetch import Fetched, fetch
from drumline.engine.project.beneath import Beneath
from drumline.engine.project.tree import left_out_warning
from drumline.errors import EngineError, NotFoundError
from unit.engine.agent.host import Host, ScriptedAgent, ask, listing


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "host")


@pytest.fixture
def output(host: Host) -> Path:
    root = host.home / "runs/4/output"
    (root / "checkpoint").mkdir(parents=True)
    write(root / "checkpoint/ckpt-1.data", "one", 10)
    write(root / "checkpoint/ckpt-1.index", "index", 11)
    write(root / "checkpoint/checkpoint", "ckpt-1", 12)
    write(root / os.fsdecode(b"caf\xe9 \n"), "odd", 13)
    write(root / "tool", "#!/bin/sh", 14)
    (root / "tool").chmod(0o755)
    (root / "latest").symlink_to("checkpoint/ckpt-1.data")
    write(root / "empty", "", 15)
    return root


def write(path: Path, text: str, at: int) -> None:
    path.write_text(text)
    os.utime(path, (1_000_000_000 + at, 1_000_000_000 + at))


def bring(host: Host, local: Path, path: str = ".", *, settled: bool = True, known: Collection[str] = ()) -> Fetched:
    return ask(host, lambda agent: fetch(agent, "~/runs/4/output", local, path=path, settled=settled, known=known))


def test_files_are_fetched_with_their_times(host: Host, output: Path, tmp_path: Path) -> None:
    found = bring(host, tmp_path / "here")
    assert listing(tmp_path / "here") == listing(output)
    assert (tmp_path / "here/tool").stat().st_mtime == 1_000_000_014
    assert found.is_whole
    assert found.taken_bytes == found.size_bytes == 26


def test_only_new_files_are_sent_and_removed_files_are_removed_here(host: Host, output: Path, tmp_path: Path) -> None:
    here = tmp_path / "here"
    first = bring(host, here)
    (here / "mine").write_text("this was not fetched")
    write(output / "checkpoint/ckpt-2.data", "two!", 20)
    write(output / "checkpoint/checkpoint", "ckpt-2", 21)
    (output / "checkpoint/ckpt-1.data").unlink()
    (output / "latest").unlink()
    second = bring(host, here, known=first.paths)
    assert second.taken_bytes == len("two!") + len("ckpt-2")
    assert listing(here) == {**listing(output), "mine": (b"this was not fetched", False)}
    assert bring(host, here, known=second.paths).taken_bytes == 0


def test_a_file_that_was_just_written_is_fetched_later_with_all_files_after_it(
    host: Host, output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "YOUNG_SECONDS", 3600.0)  # a busy machine is slow
    (output / "checkpoint/ckpt-2.data").write_text("perhaps half")
    (output / "checkpoint/checkpoint").write_text("ckpt-2")
    (output / "events.out.tfevents.1.gpu1").write_text("grows")
    going_on = bring(host, tmp_path / "here", settled=False)
    assert not going_on.is_whole
    names = {path.name for path in (tmp_path / "here").rglob("*")}
    assert "checkpoint" in names  # the folder
    assert not (tmp_path / "here/checkpoint/checkpoint").exists()
    assert "ckpt-2.data" not in names
    assert {"ckpt-1.data", "events.out.tfevents.1.gpu1"} <= names
    assert bring(host, tmp_path / "here").is_whole
    assert listing(tmp_path / "here") == listing(output)


def test_a_file_that_changes_while_it_is_sent_is_not_fetched_nor_files_after_it(
    host: Host, output: Path, tmp_path: Path
) -> None:
    def change(given: bytes) -> bytes:
        if b'"parts": [' in given:
            write(output / "checkpoint/ckpt-1.index", "another", 99)
        return given

    host.change_request = change
    assert not bring(host, tmp_path / "here").is_whole
    assert not (tmp_path / "here/checkpoint/ckpt-1.index").exists()
    assert not (tmp_path / "here/checkpoint/checkpoint").exists()
    assert (tmp_path / "here/checkpoint/ckpt-1.data").exists()


@pytest.mark.parametrize("text", ["another", "x"])
def test_a_file_that_changes_all_the_time_is_fetched_as_it_is_when_it_is_read(
    host: Host, output: Path, tmp_path: Path, text: str
) -> None:
    def change(given: bytes) -> bytes:
        if b'"parts": [' in given:
            write(output / "checkpoint/ckpt-1.index", text, 99)
        return given

    host.change_request = change
    here = tmp_path / "here"
    found = ask(host, lambda agent: fetch(agent, "~/runs/4/output", here, settled=True, anyhow=True))
    assert found.is_whole
    assert listing(tmp_path / "here") == listing(output)


def test_a_large_file_continues_where_the_connection_broke(host: Host, output: Path, tmp_path: Path) -> None:
    (output / "large").write_bytes(os.urandom(1 << 20) * 20)
    host.cut_after = 3
    with pytest.raises(EngineError, match="broke"):
        bring(host, tmp_path / "here")
    assert not (tmp_path / "here/large").exists()
    host.cut_after = None
    assert bring(host, tmp_path / "here").taken_bytes < 13 << 20
    assert listing(tmp_path / "here") == listing(output)


def test_a_single_file_or_folder_is_fetched_under_its_name(host: Host, output: Path, tmp_path: Path) -> None:
    bring(host, tmp_path / "one", "checkpoint/ckpt-1.data")
    assert listing(tmp_path / "one") == {"ckpt-1.data": (b"one", False)}
    bring(host, tmp_path / "two", str(output / "checkpoint"))
    assert listing(tmp_path / "two/checkpoint") == listing(output / "checkpoint")
    with pytest.raises(NotFoundError, match=r"gpu1 has no .*/output/nothing"):
        bring(host, tmp_path / "three", "nothing")


def test_a_file_is_replaced_by_a_folder_and_a_folder_by_a_file(host: Host, output: Path, tmp_path: Path) -> None:
    here = tmp_path / "here"
    (here / "tool").mkdir(parents=True)
    (here / "tool/x").write_text("x")
    (here / "checkpoint").write_text("was a file once")
    bring(host, here)
    assert listing(here) == listing(output)


def liar(*entries: object, content: bytes = b"evil", lengths: object = None) -> Agent:
    """Return an agent that answers with these entries, and with `content` for every requested file."""

    def answer(given: bytes) -> bytes:
        request = json.loads(given.partition(b"\n")[0])
        data = b""
        said: dict[str, object] = {"absent": False, "path": "/out", "entries": entries}
        if "parts" in request:
            data = b"".join(content for _ in request["parts"])
            said = {"lengths": lengths or [len(content) for _ in request["parts"]]}
        return json.dumps({"do": "answer", "id": 0, "bytes": len(data), **said}).encode() + b"\n" + data

    return ScriptedAgent(answer).agent()


def entry(path: object, kind: object = "file", target: object = "", size: object = 4, mtime_ns: object = 1) -> object:
    return [path, kind, size if kind == "file" else 0, mtime_ns, False, target, False]


def bring_lies(local: Path, *entries: object, known: Collection[str] = (), content: bytes = b"evil") -> Fetched:
    return asyncio.run(fetch(liar(*entries, content=content), "/out", local, settled=True, known=known))


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Return a home beside the target folder, with files that a malicious host would read or remove."""
    home = tmp_path / "home"
    (home / ".ssh/empty").mkdir(parents=True)
    (home / ".bashrc").write_text("good")
    return home


def untouched(home: Path) -> bool:
    return listing(home) == {".ssh": "folder", ".ssh/empty": "folder", ".bashrc": (b"good", False)}


@pytest.mark.parametrize(
    "entries",
    [
        [entry("../home/.bashrc")],
        [entry("/tmp/evil")],
        [entry("a", "folder"), entry("a/../../home/.bashrc")],
        [entry("a\0b")],
        [entry("")],
        [entry(".")],
        [entry("a//b")],
        [entry("missing/a")],
        [entry("a"), entry("a/b")],
        [entry("a", "folder"), entry("a", "link", "..")],
        [entry("a", "link", "b"), entry("a/b")],
        [entry(["a"])],
        [entry(1)],
        [entry("a", "device")],
        [entry("a", ["file"])],
        [entry("a", "link", 7)],
        [entry("a", size=-1)],
        [entry("a", size=True)],
        [entry("a", size=1 << 70)],
        [entry("a", size=1.5)],
        [entry("a", mtime_ns=10**30)],
        [entry("a", mtime_ns="x")],
        [entry("/".join("a" * n), "folder") for n in range(1, 66)],
        [entry("a" * 250, "folder"), *(entry("/".join(["a" * 250] * n), "folder") for n in range(2, 10))],
        ["a"],
        [None],
        [[]],
    ],
    ids=lambda entries: str(entries)[:60],
)
def test_an_invalid_list_of_files_is_refused_and_nothing_is_written(
    tmp_path: Path, outside: Path, entries: list[object]
) -> None:
    with pytest.raises(EngineError, match=r"gpu1 (sent a list of files|has sent something)"):
        bring_lies(tmp_path / "here", *entries)
    assert untouched(outside)
    assert not (tmp_path / "here").exists()


def test_a_link_that_leads_out_through_another_link_is_left_out_and_named(tmp_path: Path, outside: Path) -> None:
    entries = [
        entry("d", "folder"),
        entry("d/up", "link", ".."),
        entry("out", "link", "d/up/../home"),
        entry("abs", "link", str(outside)),
        entry("climb", "link", "../home"),
        entry("deep", "link", "./d/./../../home"),
        entry("nul", "link", "a\0b"),
        entry("nothing", "link", ""),
        entry("fine", "link", "d/file"),
        entry("d/file"),
    ]
    found = bring_lies(tmp_path / "here", *entries)
    assert found.left_out == ("abs", "climb", "deep", "nothing", "nul", "out")
    assert listing(tmp_path / "here") == {
        "d": "folder",
        "d/up": "-> ..",
        "d/file": (b"evil", False),
        "fine": "-> d/file",
    }
    assert found.is_whole
    assert left_out_warning(found.left_out).endswith("regular files: abs, climb, deep, …")


def test_a_link_that_leads_out_of_the_requested_part_is_left_out(tmp_path: Path) -> None:
    host = liar(entry("ckpt", "folder"), entry("ckpt/up", "link", "../model"), entry("ckpt/file"))
    found = asyncio.run(fetch(host, "/out", tmp_path / "here", path="ckpt", settled=True))
    assert found.left_out == ("ckpt/up",)
    alone = asyncio.run(
        fetch(liar(entry("latest", "link", "ckpt")), "/out", tmp_path / "here", path="latest", settled=True)
    )
    assert alone.left_out == ("latest",)


def test_a_path_beside_the_requested_part_is_refused(tmp_path: Path) -> None:
    host = liar(entry("ckpt", "folder"), entry("model"))
    with pytest.raises(EngineError, match="'model' is not in 'ckpt'"):
        asyncio.run(fetch(host, "/out", tmp_path / "here", path="x/../ckpt", settled=True))
    assert not (tmp_path / "here").exists()


def test_a_link_in_place_of_a_folder_is_not_followed(tmp_path: Path, outside: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (here / "d").symlink_to(outside)
    (here / "f").symlink_to(outside / ".bashrc")
    (here / fetching.SCRATCH).symlink_to(outside)
    bring_lies(here, entry("d", "folder"), entry("d/.bashrc"), entry("f"))
    assert untouched(outside)
    assert listing(here) == {"d": "folder", "d/.bashrc": (b"evil", False), "f": (b"evil", False)}


def test_only_files_within_the_target_folder_are_removed(tmp_path: Path, outside: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (here / "d").symlink_to(outside)
    (here / "link").symlink_to(outside / ".bashrc")
    (here / "sub").mkdir()
    (here / "sub/out").symlink_to(outside)
    known = ["d/.bashrc", "d/.ssh/empty", "link", "sub"]
    bring_lies(here, known=known)
    assert untouched(outside)
    assert listing(here) == {"d": f"-> {outside}", "sub": "folder", "sub/out": f"-> {outside}"}
    bring_lies(here, entry("sub"))  # a file takes the place of a folder with a link in it
    assert untouched(outside)


@pytest.mark.parametrize("lengths", [[5], [3], [0], [-2], [4, 4], [True], ["4"], "4", {"a": 4}, 4], ids=str)
def test_pieces_that_were_not_requested_are_refused(tmp_path: Path, lengths: object) -> None:
    host = liar(entry("a"), lengths=lengths)
    with pytest.raises(EngineError, match="gpu1 sent other pieces of files than it was asked for"):
        asyncio.run(fetch(host, "/out", tmp_path / "here", settled=True))
    assert not (tmp_path / "here/a").exists()


def test_folders_of_a_run_are_removed_and_missing_ones_are_no_error(host: Host, output: Path) -> None:
    ask(host, lambda agent: agent.ask({"do": "remove", "paths": ["~/runs/4", "~/runs/5"]}, Done))
    assert not output.parent.exists()
    assert output.parent.parent.exists()


def test_other_hosts_are_served_while_a_long_list_is_read(tmp_path: Path) -> None:
    beats = 0
    folders = ["/".join("a" * depth) for depth in range(1, 50)]
    names = [*folders, *(f"{folders[-1]}/{number}" for number in range(3000))]
    host = liar(*(entry(name, "folder") for name in names))

    async def listen() -> None:
        nonlocal beats
        while True:
            await asyncio.sleep(0)
            beats += 1

    async def both() -> None:
        listening = asyncio.ensure_future(listen())
        await fetch(host, "/out", tmp_path / "here", settled=True)
        await fetch(host, "/out", tmp_path / "here", settled=True)
        listening.cancel()

    asyncio.run(both())
    assert beats > 2 * len(names) / 64


def test_a_folder_is_created_without_a_check_of_every_folder_above_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = 0
    really_open = os.open

    def count(*args: object, **options: object) -> int:
        nonlocal opened
        opened += 1
        return really_open(*args, **options)  # type: ignore[arg-type]

    with Beneath(tmp_path) as folder:
        folder.make_folder("/".join("a" * 60))
        monkeypatch.setattr(os, "open", count)
        folder.make_folder("/".join("a" * 61))
    assert opened == 60


@pytest.mark.parametrize(
    "entries",
    [
        [entry("a", "x" * 100_000)],
        [entry("x" * 100_000, size=-1)],
        [entry("a"), entry("a/" + "x" * 1000)],
        [entry(1, "x" * 100_000)],
    ],
    ids=["kind", "path", "parent", "type"],
)
def test_the_error_about_an_invalid_list_is_short(tmp_path: Path, entries: list[object]) -> None:
    with pytest.raises(EngineError) as raised:
        bring_lies(tmp_path / "here", *entries)
    assert len(raised.value.message) < 500


def test_an_answer_that_is_not_ascii_is_refused(tmp_path: Path) -> None:
    said = '{"do": "answer", "id": 0, "absent": true, "path": "\U0001f600"}\n'
    agent = ScriptedAgent(lambda _: said.encode()).agent()
    with pytest.raises(EngineError, match="text that is not ASCII"):
        asyncio.run(fetch(agent, "/out", tmp_path / "here"))


_ASK = """
import asyncio
from pathlib import Path
from drumline.engine.agent.client import Agent
from drumline.engine.agent.send import FILES_LIMITS

class Channel:
    async def write(self, data):
        pass

    async def readline(self, most_bytes):
        return b'{"do": "answer", "entries": [' + b",".join([b'{"a":0}'] * 1_000_000) + b"]}\\n"

    async def readexactly(self, size):
        return b""

asyncio.run(Agent(Channel(), "gpu1").exchange({"do": "offer"}, seconds=600, limits=FILES_LIMITS))
# not ru_maxrss: after an exec it still counts the memory of the process that started this one
print(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
"""


def test_an_answer_takes_little_more_memory_than_its_content() -> None:
    done = subprocess.run([sys.executable, "-c", _ASK], capture_output=True, text=True, check=True)
    assert int(done.stdout) >> 10 < 320  # MiB
