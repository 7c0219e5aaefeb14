"""What a run writes on a host comes here: only what is new, in the order of writing, and nothing half."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection
from pathlib import Path

import pytest

from drumline.engine.project import fetch as fetching
from drumline.engine.project.carry import ask
from drumline.engine.project.fetch import Fetched, Found, fetch
from drumline.errors import EngineError, NotFoundError
from unit.engine.project.host import Host, listing


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
    return asyncio.run(fetch(host, "~/runs/4/output", local, path=path, settled=settled, known=known))


def test_what_is_there_is_here_with_its_times(host: Host, output: Path, tmp_path: Path) -> None:
    found = bring(host, tmp_path / "here")
    assert listing(tmp_path / "here") == listing(output)
    assert (tmp_path / "here/tool").stat().st_mtime == 1_000_000_014
    assert found.is_whole
    assert found.taken_bytes == found.size_bytes == 26


def test_only_what_is_new_travels_and_what_is_gone_there_goes_here(host: Host, output: Path, tmp_path: Path) -> None:
    here = tmp_path / "here"
    first = bring(host, here)
    (here / "mine").write_text("nobody fetched this")
    write(output / "checkpoint/ckpt-2.data", "two!", 20)
    write(output / "checkpoint/checkpoint", "ckpt-2", 21)
    (output / "checkpoint/ckpt-1.data").unlink()
    (output / "latest").unlink()
    second = bring(host, here, known=first.paths)
    assert second.taken_bytes == len("two!") + len("ckpt-2")
    assert listing(here) == {**listing(output), "mine": (b"nobody fetched this", False)}
    assert bring(host, here, known=second.paths).taken_bytes == 0


def test_what_was_just_written_waits_with_all_that_came_after_it(
    host: Host, output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "YOUNG_SECONDS", 3600.0)  # a machine that is busy is slow
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


def test_a_file_that_changes_on_its_way_is_not_taken_nor_what_came_after(
    host: Host, output: Path, tmp_path: Path
) -> None:
    def change(given: bytes) -> bytes:
        if b'"parts": [' in given:
            write(output / "checkpoint/ckpt-1.index", "another", 99)
        return given

    host.meddle = change
    assert not bring(host, tmp_path / "here").is_whole
    assert not (tmp_path / "here/checkpoint/ckpt-1.index").exists()
    assert not (tmp_path / "here/checkpoint/checkpoint").exists()
    assert (tmp_path / "here/checkpoint/ckpt-1.data").exists()


@pytest.mark.parametrize("text", ["another", "x"])
def test_a_file_that_never_keeps_still_comes_anyhow_as_it_is_when_it_is_read(
    host: Host, output: Path, tmp_path: Path, text: str
) -> None:
    def change(given: bytes) -> bytes:
        if b'"parts": [' in given:
            write(output / "checkpoint/ckpt-1.index", text, 99)
        return given

    host.meddle = change
    assert asyncio.run(fetch(host, "~/runs/4/output", tmp_path / "here", settled=True, anyhow=True)).is_whole
    assert listing(tmp_path / "here") == listing(output)


def test_a_large_file_goes_on_where_the_connection_broke(host: Host, output: Path, tmp_path: Path) -> None:
    (output / "large").write_bytes(os.urandom(1 << 20) * 20)
    host.cut_after = 3
    with pytest.raises(EngineError, match="broke"):
        bring(host, tmp_path / "here")
    assert not (tmp_path / "here/large").exists()
    host.cut_after = None
    assert bring(host, tmp_path / "here").taken_bytes < 13 << 20
    assert listing(tmp_path / "here") == listing(output)


def test_one_file_or_folder_comes_under_its_name(host: Host, output: Path, tmp_path: Path) -> None:
    bring(host, tmp_path / "one", "checkpoint/ckpt-1.data")
    assert listing(tmp_path / "one") == {"ckpt-1.data": (b"one", False)}
    bring(host, tmp_path / "two", str(output / "checkpoint"))
    assert listing(tmp_path / "two/checkpoint") == listing(output / "checkpoint")
    with pytest.raises(NotFoundError, match=r"gpu1 has no .*/output/nothing"):
        bring(host, tmp_path / "three", "nothing")


def test_a_file_in_the_way_of_a_folder_goes_and_the_other_way_round(host: Host, output: Path, tmp_path: Path) -> None:
    here = tmp_path / "here"
    (here / "tool").mkdir(parents=True)
    (here / "tool/x").write_text("x")
    (here / "checkpoint").write_text("was a file once")
    bring(host, here)
    assert listing(here) == listing(output)


@pytest.mark.parametrize(
    "found",
    [
        Found("../evil", "file", 1, 1, executable=False, target="", is_young=False),
        Found("/evil", "file", 1, 1, executable=False, target="", is_young=False),
        Found("a/../../evil", "file", 1, 1, executable=False, target="", is_young=False),
        Found("a", "link", 0, 1, executable=False, target="/home/you/.ssh", is_young=False),
        Found("a", "link", 0, 1, executable=False, target="../..", is_young=False),
        Found(fetching.SCRATCH, "folder", 0, 1, executable=False, target="", is_young=False),
    ],
)
def test_nothing_is_written_outside_whatever_a_host_says(found: Found) -> None:
    assert not fetching._is_inside(found)


def test_folders_of_a_run_are_removed_and_those_that_are_gone_not_missed(host: Host, output: Path) -> None:
    asyncio.run(ask(host, "python3", "remove", {"folders": ["~/runs/4", "~/runs/5"]}))
    assert not output.parent.exists()
    assert output.parent.parent.exists()
