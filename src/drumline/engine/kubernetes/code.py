"""The project's folder as an archive that a cluster's API can carry, and drumline's runtime beside it."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from drumline.engine.kubernetes.tree import OWN, Entry, Tree, read, shown, walk
from drumline.engine.protocol import Site
from drumline.errors import InputError
from drumline.plan.types import Plan
from drumline.words import bulk, count

PART_BYTES = 700_000  # a ConfigMap may have 1 MiB, and travels as base64 in a request of at most 1.5 MiB
MOST_BYTES = 8 << 20  # compressed: a dozen ConfigMaps. All of etcd is 2 GiB by default, and every node reads them
MOST_RAW_BYTES = 256 << 20  # not even compressed
_TIME = 315_532_800  # 1980-01-01; the oldest that every kind of archive can say
_LARGEST = 5  # are named
_SCRIPTS = ("ready.sh", "ready.py")


class Code(NamedTuple):
    """What is carried into each pod."""

    parts: tuple[bytes, ...]  # of the project's archive; none if nothing is carried but the runtime
    files: int
    size_bytes: int  # of the files, as they are
    runtime: bytes  # an archive of `drumline.runtime`
    remarks: tuple[str, ...] = ()  # what is otherwise than one would think

    @property
    def summary(self) -> str:
        """How much it is, as people say it."""
        return f"{bulk(self.size_bytes)}, {count(self.files, 'file')}"

    @property
    def contents(self) -> tuple[Mapping[str, bytes], ...]:
        """What each ConfigMap holds, by key; all of them together are one folder in the pod."""
        first = {**{name: _script(name) for name in _SCRIPTS}, "runtime.tar.gz": self.runtime}
        return (first, *({f"project-{number:03}": part} for number, part in enumerate(self.parts)))


def pack(directory: Path | None, *, without: Collection[Path] = ()) -> Code:
    """Pack a project, or only the runtime; the same content gives the same bytes, whoever packs it and when.

    Raise InputError if something cannot be read, or if it is more than an API should carry.
    """
    runtime = _compressed(_archive(_runtime_members()))
    if directory is None:
        return Code((), 0, 0, runtime)
    tree = walk(directory, without=without)
    _refuse_large(tree, None)
    remarks = list(tree.remarks)
    packed = _compressed(_archive(_project_members(directory, tree, remarks)))
    _refuse_large(tree, len(packed))
    parts = tuple(packed[at : at + PART_BYTES] for at in range(0, len(packed), PART_BYTES))
    files = [entry for entry in tree.entries if entry.kind != "folder"]
    size = sum(entry.size_bytes for entry in files)
    return Code(parts, len(files), size, runtime, tuple(remarks))


def own_folders(plan: Plan, site: Site) -> list[Path]:
    """What a project's folder may hold that runs have written: their output on this machine, and drumline's home."""
    named = [path for path in (plan.output, plan.checkpoint) if path and Path(path) != Path(".")]
    return [*(site.directory / path for path in named), site.home]


class _Member(NamedTuple):
    """One entry of an archive, with what is in it."""

    entry: Entry
    data: bytes = b""


def _project_members(directory: Path, tree: Tree, remarks: list[str]) -> Iterator[_Member]:
    for entry in tree.entries:
        if entry.kind != "file":
            yield _Member(entry)
        elif found := read(directory, entry):
            data, still = found
            if not still:
                remarks.append(
                    f"{shown(entry.path)} changes while it is packed, and is carried as it was at one moment"
                )
            yield _Member(entry, data)


def _runtime_members() -> Iterator[_Member]:
    package = resources.files("drumline")
    yield _Member(Entry("drumline", "folder"))
    yield _Member(Entry("drumline/__init__.py", "file"), package.joinpath("__init__.py").read_bytes())
    yield _Member(Entry("drumline/runtime", "folder"))
    files = (each for each in package.joinpath("runtime").iterdir() if each.name.endswith(".py"))
    for each in sorted(files, key=lambda file: file.name):
        yield _Member(Entry(f"drumline/runtime/{each.name}", "file"), each.read_bytes())


def _script(name: str) -> bytes:
    return resources.files("drumline").joinpath("runtime", name).read_bytes()


def _archive(members: Iterable[_Member]) -> bytes:
    """A tar of what busybox and Python both read: GNU's long names, and names as the bytes that they are."""
    whole = io.BytesIO()
    with tarfile.open(
        fileobj=whole, mode="w", format=tarfile.GNU_FORMAT, encoding="utf-8", errors="surrogateescape"
    ) as archive:
        for entry, data in members:
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


def _compressed(archive: bytes) -> bytes:
    return gzip.compress(archive, compresslevel=6, mtime=0)


def _refuse_large(tree: Tree, packed_bytes: int | None) -> None:
    """Raise InputError for a project that is too large, packed or, before anybody reads it, as it is."""
    size = sum(entry.size_bytes for entry in tree.entries)
    if packed_bytes is None and size <= MOST_RAW_BYTES:
        return
    if packed_bytes is not None and packed_bytes <= MOST_BYTES:
        return
    files = sum(entry.kind != "folder" for entry in tree.entries)
    packed = "" if packed_bytes is None else f", {bulk(packed_bytes)} compressed"
    largest = "\n".join(f"  {shown(name)}  {bulk(amount)}" for name, amount in _largest(tree.entries))
    raise InputError(
        f"the project is {bulk(size)} in {count(files, 'file')}{packed}; a cluster's API should carry no more than"
        f" {bulk(MOST_BYTES)} compressed. The largest are\n{largest}",
        hint=f"name what the training does not read in {OWN}, with lines as in .gitignore; mount data as a volume; or"
        " build the project into the image and say `code: false`",
    )


def _largest(entries: Iterable[Entry]) -> list[tuple[str, int]]:
    """The folders and files that matter most, none of them inside another: a folder unless one child is nearly all."""
    sizes: Counter[str] = Counter()
    children: dict[str, set[str]] = {}
    for entry in entries:
        path, size = entry.path, entry.size_bytes
        if entry.kind == "folder":
            continue
        sizes[path] += size
        while path:
            parent = os.path.dirname(path)
            children.setdefault(parent, set()).add(path)
            sizes[f"{parent}/" if parent else ""] += size
            path = parent
    found = []
    for top in children.get("", ()):
        path = top
        while path in children:
            inner = max(children[path], key=lambda each: (_size(sizes, each), each))
            if _size(sizes, inner) < 0.9 * _size(sizes, path):
                break
            path = inner
        found.append((f"{path}/" if path in children else path, _size(sizes, path)))
    return sorted(found, key=lambda each: (-each[1], each[0]))[:_LARGEST]


def _size(sizes: Mapping[str, int], path: str) -> int:
    return sizes.get(f"{path}/", 0) or sizes.get(path, 0)
