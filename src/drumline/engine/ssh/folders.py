"""Folders of a run on hosts: the parts of the project that are sent there, and the targets of fetched output."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from drumline.engine.project.excluded import excluded_folders
from drumline.engine.project.size import list_largest
from drumline.engine.project.tree import OWN, walk_project
from drumline.engine.protocol import Site
from drumline.engine.ssh.plan_options import hosts_of
from drumline.errors import InputError
from drumline.plan.types import Plan
from drumline.run.origin import ORIGIN, Origin, fetched_folder, origin_from_json
from drumline.words import decimal_size

AMONG_CODE = "one host could replace the code that runs on the others, since it is the project's folder or holds it"
AMONG_CODE_HINT = "name a folder of its own, as `output: results`, or one that all hosts share: `ssh: {shared: PATH}`"
_LARGE_BYTES = 1 << 30


def read_origin(run_dir: Path) -> Origin | None:
    """Return where a run writes its output; None if nothing was written yet."""
    with suppress(OSError):
        return origin_from_json((run_dir / ORIGIN).read_text())
    return None


def refuse_output_among_code(plan: Plan) -> None:
    """Raise InputError if hosts would receive files that another host wrote in the project's folder or above it.

    A host could then replace the code that runs on the others.
    """
    if hosts_of(plan).shares_output:
        return
    project = "/base/runs/run/project"
    for kind, path in (("output", plan.output), ("checkpoint", plan.checkpoint)):
        if path and holds(posixpath.join(project, path), project):
            raise InputError(f"{kind}: {path} cannot be used on several hosts: {AMONG_CODE}", hint=AMONG_CODE_HINT)


def folder_warnings(plan: Plan, site: Site) -> Sequence[str]:
    """Return warnings about the project's size and files that are not sent; raise InputError for unreadable ones."""
    tree = walk_project(site.directory, without=excluded_folders(plan, site))
    size = sum(entry.size_bytes for entry in tree.entries)
    if size < _LARGE_BYTES:
        return tree.warnings
    large = (
        f"the project is {decimal_size(size)} for every host; {OWN} leaves out what they do not need. The largest are"
    )
    return (*tree.warnings, f"{large}\n{list_largest(tree)}")


def local_folders(plan: Plan, directory: Path, run_dir: Path) -> dict[str, Path]:
    """Return the folders for fetched files on this machine, by their kind.

    A folder that the spec names is used if it lies below the project's folder, else one in the run's folder: hosts
    choose the files there, and must not choose files of the project or outside of it.
    """
    named = fetched_folder(str(directory), plan.output)
    output = Path(named) if named else run_dir / "output"
    if plan.checkpoint is None:
        return {"output": output}
    named = fetched_folder(str(directory), plan.checkpoint)
    checkpoint = Path(named) if named else run_dir / "checkpoint"
    return {"output": output} if checkpoint.is_relative_to(output) else {"output": output, "checkpoint": checkpoint}


def holds(folder: str, inner: str) -> bool:
    """Return whether one folder is the other, or lies above it."""
    folder, inner = posixpath.normpath(folder), posixpath.normpath(inner)
    return posixpath.commonpath((folder, inner)) == folder
