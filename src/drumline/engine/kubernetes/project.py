"""Pack the project's folder and drumline's runtime into ConfigMaps."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from importlib import resources
from pathlib import Path

from drumline.engine.kubernetes.plan_options import cluster_of
from drumline.engine.project.archive import compress, make_archive, project_members, runtime_members
from drumline.engine.project.excluded import excluded_folders
from drumline.engine.project.size import count_files, list_largest, size_bytes
from drumline.engine.project.tree import OWN, Tree, walk_project
from drumline.engine.protocol import Site
from drumline.errors import InputError
from drumline.plan.types import Plan
from drumline.record import Record
from drumline.words import count, decimal_size

PART_BYTES = 700_000  # a ConfigMap may have 1 MiB, sent as base64 in a request of at most 1.5 MiB
MOST_BYTES = 8 << 20  # compressed: a dozen ConfigMaps, which every node reads; etcd has 2 GiB by default
MOST_RAW_BYTES = 256 << 20  # before compression
_SCRIPTS = ("ready.sh", "ready.py")


class PackedProject(Record):
    """The project and the runtime as they are copied into each pod."""

    parts: tuple[bytes, ...]  # of the project's archive; empty if the image has the code
    files: int
    size_bytes: int  # of the files, uncompressed
    runtime: bytes  # an archive of `drumline.runtime`
    warnings: tuple[str, ...] = ()

    @property
    def contents(self) -> tuple[Mapping[str, bytes], ...]:
        """The content of each ConfigMap, by key; together they are one folder in the pod."""
        first = {**{name: _script(name) for name in _SCRIPTS}, "runtime.tar.gz": self.runtime}
        return (first, *({f"project-{number:03}": part} for number, part in enumerate(self.parts)))


def pack(directory: Path | None, *, without: Collection[Path] = ()) -> PackedProject:
    """Pack a project, or only the runtime; the same content gives the same bytes.

    Raise InputError if a file cannot be read, or if the project is too large for ConfigMaps.
    """
    runtime = compress(make_archive(runtime_members()))
    if directory is None:
        return PackedProject((), 0, 0, runtime)
    tree = walk_project(directory, without=without)
    _refuse_large(tree, None)
    warnings = list(tree.warnings)
    packed = compress(make_archive(project_members(directory, tree, warnings)))
    _refuse_large(tree, len(packed))
    parts = tuple(packed[at : at + PART_BYTES] for at in range(0, len(packed), PART_BYTES))
    return PackedProject(parts, count_files(tree), size_bytes(tree), runtime, tuple(warnings))


def _script(name: str) -> bytes:
    return resources.files("drumline").joinpath("runtime", name).read_bytes()


def _refuse_large(tree: Tree, packed_bytes: int | None) -> None:
    """Raise InputError for a project that is too large, compressed or, before it is read, uncompressed."""
    size = size_bytes(tree)
    if packed_bytes is None and size <= MOST_RAW_BYTES:
        return
    if packed_bytes is not None and packed_bytes <= MOST_BYTES:
        return
    packed = "" if packed_bytes is None else f", {decimal_size(packed_bytes)} compressed"
    raise InputError(
        f"the project is {decimal_size(size)} in {count(count_files(tree), 'file')}{packed}; at most"
        f" {decimal_size(MOST_BYTES)} compressed can be copied into pods. The largest are\n{list_largest(tree)}",
        hint=f"list what the training does not read in {OWN}, in the syntax of .gitignore; mount data as a volume; or"
        " build the project into the image and set `code: false`",
    )


def pack_project(plan: Plan, site: Site) -> PackedProject:
    """Return the packed project of a plan; only the runtime where the image has the code."""
    return pack(site.directory if cluster_of(plan).code else None, without=excluded_folders(plan, site))
