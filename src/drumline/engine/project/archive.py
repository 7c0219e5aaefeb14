"""A project, or a part of drumline, as an archive: the same content always gives the same bytes."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Iterable, Iterator
from importlib import resources
from pathlib import Path

from drumline.engine.project.tree import Entry, Tree, printable, read_file
from drumline.record import Record

_TIME = 315_532_800  # 1980-01-01; the oldest time that every kind of archive can store


class Member(Record):
    """One entry of an archive, with its content."""

    entry: Entry
    data: bytes = b""


def project_members(directory: Path, tree: Tree, warnings: list[str]) -> Iterator[Member]:
    """Yield the entries of a project that still exist; add a warning for each file that changes while it is read."""
    for entry in tree.entries:
        if entry.kind != "file":
            yield Member(entry)
        elif found := read_file(directory, entry):
            data, is_unchanged = found
            if not is_unchanged:
                warnings.append(
                    f"{printable(entry.path)} changes while it is packed; one consistent state of it is sent"
                )
            yield Member(entry, data)


def runtime_members() -> Iterator[Member]:
    """Yield the files of `drumline.runtime`, which a training script may import."""
    package = resources.files("drumline")
    yield Member(Entry("drumline", "folder"))
    yield Member(Entry("drumline/__init__.py", "file"), package.joinpath("__init__.py").read_bytes())
    yield Member(Entry("drumline/runtime", "folder"))
    files = (each for each in package.joinpath("runtime").iterdir() if each.name.endswith(".py"))
    for each in sorted(files, key=lambda file: file.name):
        yield Member(Entry(f"drumline/runtime/{each.name}", "file"), each.read_bytes())


def make_archive(members: Iterable[Member]) -> bytes:
    """Return a tar file that busybox and Python can read: with GNU's long names, and names as raw bytes."""
    whole = io.BytesIO()
    with tarfile.open(
        fileobj=whole, mode="w", format=tarfile.GNU_FORMAT, encoding="utf-8", errors="surrogateescape"
    ) as archive:
        for member in members:
            entry, data = member.entry, member.data
            header = tarfile.TarInfo(entry.path)
            header.mtime = _TIME
            header.mode = 0o755 if entry.executable or entry.kind == "folder" else 0o644
            header.size = len(data)
            if entry.kind == "folder":
                header.type = tarfile.DIRTYPE
            elif entry.kind == "link":
                header.type, header.linkname = tarfile.SYMTYPE, entry.target
            archive.addfile(header, io.BytesIO(data))
    return whole.getvalue()


def compress(archive: bytes) -> bytes:
    """Return data compressed by gzip, without a time, so that the same data gives the same bytes."""
    return gzip.compress(archive, compresslevel=6, mtime=0)
