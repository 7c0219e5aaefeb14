"""The project's folder as an archive that a cluster's API can carry, and drumline's runtime beside it."""

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

PART_BYTES = 700_000  # a ConfigMap may have 1 MiB, and travels as base64 in a request of at most 1.5 MiB
MOST_BYTES = 8 << 20  # compressed: a dozen ConfigMaps. All of etcd is 2 GiB by default, and every node reads them
MOST_RAW_BYTES = 256 << 20  # not even compressed
_SCRIPTS = ("ready.sh", "ready.py")


class PackedProject(Record):
    """What is carried into each pod."""

    parts: tuple[bytes, ...]  # of the project's archive; none if nothing is carried but the runtime
    files: int
    size_bytes: int  # of the files, as they are
    runtime: bytes  # an archive of `drumline.runtime`
    warnings: tuple[str, ...] = ()  # what is otherwise than one would think

    @property
    def contents(self) -> tuple[Mapping[str, bytes], ...]:
        """What each ConfigMap holds, by key; all of them together are one folder in the pod."""
        first = {**{name: _script(name) for name in _SCRIPTS}, "runtime.tar.gz": self.runtime}
        return (first, *({f"project-{number:03}": part} for number, part in enumerate(self.parts)))


def pack(directory: Path | None, *, without: Collection[Path] = ()) -> PackedProject:
    """Pack a project, or only the runtime; the same content gives the same bytes, whoever packs it and when.

    Raise InputError if something cannot be read, or if it is more than an API should carry.
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
    """Raise InputError for a project that is too large, packed or, before anybody reads it, as it is."""
    size = size_bytes(tree)
    if packed_bytes is None and size <= MOST_RAW_BYTES:
        return
    if packed_bytes is not None and packed_bytes <= MOST_BYTES:
        return
    packed = "" if packed_bytes is None else f", {decimal_size(packed_bytes)} compressed"
    raise InputError(
        f"the project is {decimal_size(size)} in {count(count_files(tree), 'file')}{packed}; a cluster's API"
        f" should carry no more than {decimal_size(MOST_BYTES)} compressed. The largest are\n{list_largest(tree)}",
        hint=f"name what the training does not read in {OWN}, with lines as in .gitignore; mount data as a volume; or"
        " build the project into the image and say `code: false`",
    )


def pack_project(plan: Plan, site: Site) -> PackedProject:
    """Return the project of a plan, packed; nothing of it where the image has the code."""
    return pack(site.directory if cluster_of(plan).code else None, without=excluded_folders(plan, site))
