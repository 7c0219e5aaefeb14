"""A tar that a pod sends is unpacked beneath the target folder, or refused."""

from __future__ import annotations

import io
import os
import tarfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from drumline.engine.kubernetes.untar import unpack
from unit.engine.agent.host import listing


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "", data: bytes = b"", mode: int = 0o644) -> bytes:
    """Return one member as its header and content."""
    found = tarfile.TarInfo(name)
    found.type, found.linkname, found.size, found.mode, found.mtime = kind, target, len(data), mode, 1_000_000_000
    packed = found.tobuf(tarfile.GNU_FORMAT, errors="surrogateescape")
    return packed + data + b"\0" * (-len(data) % 512)


def archive(*members: bytes) -> io.BytesIO:
    return io.BytesIO(b"".join(members) + b"\0" * 1024)


def folder(name: str) -> bytes:
    return member(name, tarfile.DIRTYPE)


def link(name: str, target: str) -> bytes:
    return member(name, tarfile.SYMTYPE, target)


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    (tmp_path / "outside").write_text("good")
    (tmp_path / "scratch").mkdir()
    return tmp_path / "scratch"


def test_files_folders_and_links_within_are_unpacked(scratch: Path) -> None:
    long = "x" * 200
    sent = archive(
        folder("./output"),
        member("./output/model", data=b"weights" * 1000),
        member("./output/run.sh", data=b"#!", mode=0o4755),
        member("./output/..."),
        member(f"./output/{long}", data=b"long"),
        member(os.fsdecode(b"./output/caf\xe9"), data=b"odd"),
        folder("./output/deep"),
        link("./output/deep/latest", "../model"),
    )
    assert unpack(sent, scratch) == ()
    assert listing(scratch) == {
        "output": "folder",
        "output/model": (b"weights" * 1000, False),
        "output/run.sh": (b"#!", True),
        "output/...": (b"", False),
        f"output/{long}": (b"long", False),
        os.fsdecode(b"output/caf\xe9"): (b"odd", False),
        "output/deep": "folder",
        "output/deep/latest": "-> ../model",
    }
    assert (scratch / "output/model").stat().st_mtime == 1_000_000_000
    assert (scratch / "output/run.sh").stat().st_mode & 0o7000 == 0


@pytest.mark.parametrize(
    "sent",
    [
        [member("/etc/passwd")],
        [member("../outside")],
        [member("./output/../../outside")],
        [folder("..")],
        [folder("output"), member("output/again", tarfile.LNKTYPE, "../outside")],
        [folder("output"), member("output/a"), member("output/again", tarfile.LNKTYPE, "output/a")],
        [folder("output"), link("output/l", "d"), member("output/l/file", data=b"evil")],
        [folder("output"), member("output/a"), member("output/a/b")],
        [folder("output"), member("output/a"), member("output/a", data=b"twice")],
    ],
    ids=str,
)
def test_paths_outside_of_the_folder_and_hard_links_are_refused(scratch: Path, sent: list[bytes]) -> None:
    with pytest.raises((tarfile.TarError, OSError)):
        unpack(archive(*sent), scratch)
    assert (scratch.parent / "outside").read_text() == "good"
    assert sorted(each.name for each in scratch.parent.iterdir()) == ["outside", "scratch"]


def test_links_that_lead_out_and_special_files_are_left_out(scratch: Path) -> None:
    sent = archive(
        folder("output"),
        link("output/abs", "/etc"),
        link("output/climbs", "../outside"),
        folder("output/d"),
        link("output/d/up", ".."),
        link("output/chain", "d/up/../outside"),
        member("output/null", tarfile.CHRTYPE),
        member("output/pipe", tarfile.FIFOTYPE),
    )
    assert unpack(sent, scratch) == (
        "output/abs",
        "output/climbs",
        "output/chain",
        "output/null",
        "output/pipe",
    )
    assert set(listing(scratch)) == {"output", "output/d", "output/d/up"}
    assert unpack(archive(link("latest", "output")), scratch) == ("latest",)


def test_a_chain_of_links_beyond_the_longest_path_with_a_hard_link_writes_nothing_outside(scratch: Path) -> None:
    """As in CVE-2025-4517: what lies behind a path that is too long to be resolved was taken for what lies inside."""
    name = "d" * 247
    sent, at = [], ""
    for letter in "abcdefghijklmnop":
        sent += [folder(f"{at}{name}"), link(f"{at}{letter}", name)]
        at += f"{name}/"
    chain = "/".join("abcdefghijklmnop")
    sent += [
        link(f"{chain}/{'l' * 254}", "../" * 16),
        link("escape", f"{chain}/{'l' * 254}/../outside"),
        member("flag", tarfile.LNKTYPE, "escape"),
        member("flag", data=b"evil"),
    ]
    with pytest.raises((tarfile.TarError, OSError)):
        unpack(archive(*sent), scratch)
    assert (scratch.parent / "outside").read_text() == "good"
    assert not list(scratch.rglob("escape"))


class Endless(io.RawIOBase):
    """A stream that begins with some data, and continues with much more."""

    def __init__(self, start: bytes, more_bytes: int) -> None:
        self._start = io.BytesIO(start)
        self.left = more_bytes

    def read(self, size: int = -1) -> bytes:
        data = self._start.read(size)
        if not data:
            data = b"x" * min(size, self.left)
            self.left -= len(data)
        return data


def headers() -> Iterator[bytes]:
    for kind in (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE):
        found = tarfile.TarInfo("././@LongLink")
        found.type, found.size = kind, 10**12
        yield found.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize("header", list(headers()), ids=["name", "link", "pax", "global"])
def test_a_header_of_any_announced_length_takes_no_memory(scratch: Path, header: bytes) -> None:
    stream = Endless(header, 64 << 20)
    tracemalloc.start()
    try:
        with pytest.raises(tarfile.TarError, match="too large"):
            unpack(stream, scratch)  # type: ignore[arg-type]
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("cut", [100, 1100])
def test_a_stream_that_ends_too_early_is_refused(scratch: Path, cut: int) -> None:
    whole = archive(folder("output"), member("output/model", data=b"x" * 4096)).getvalue()
    with pytest.raises(tarfile.TarError):
        unpack(io.BytesIO(whole[:cut]), scratch)


def test_impossible_sizes_are_refused_and_impossible_times_ignored(scratch: Path) -> None:
    negative = tarfile.TarInfo("a")
    negative.size = -5
    with pytest.raises((tarfile.TarError, ValueError)):
        unpack(archive(negative.tobuf(tarfile.GNU_FORMAT)), scratch)
    for number, time in enumerate(("nan", "inf", "-1", "1e300")):
        odd = tarfile.TarInfo(f"file{number}")
        odd.pax_headers = {"mtime": time}
        unpack(archive(odd.tobuf(tarfile.PAX_FORMAT)), scratch)
        assert (scratch / f"file{number}").stat().st_mtime == 0


def test_folders_deeper_than_can_be_removed_again_are_refused(scratch: Path) -> None:
    sent = archive(folder("output"), folder("/".join(["output", *"a" * 64])))
    with pytest.raises(tarfile.TarError, match="too deep or too long"):
        unpack(sent, scratch)
