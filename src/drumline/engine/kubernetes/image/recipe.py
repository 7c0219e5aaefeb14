"""The content from which an image is built, and the name of the image, which is derived from that content."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path

from drumline.engine.kubernetes.plan_options import Image
from drumline.engine.project.tree import read_file, walk_project
from drumline.errors import InputError
from drumline.record import Record

LOCAL_REGISTRY = "localhost/drumline"  # images that are not pushed
_WHEELS = "/tmp/drumline-install"
_ARCHIVES = (".whl", ".tar.gz", ".zip")


class Recipe(Record):
    """What to build: the user's Dockerfile with its context, or a base image with packages."""

    directory: str  # of the spec; the paths are relative to it
    image: Image

    @property
    def file(self) -> Path:
        """The user's Dockerfile."""
        return Path(self.directory, self.image.dockerfile or "Dockerfile")

    @property
    def folder(self) -> Path:
        """The build context."""
        return Path(self.directory, self.image.context)

    @property
    def local_archives(self) -> dict[str, Path]:
        """Archives of the project among the requirements, by requirement."""
        found = {}
        for line in self.image.install:
            path = Path(self.directory, line)
            if line.endswith(_ARCHIVES) and "://" not in line and " @ " not in line:
                found[line] = path
        return found

    def digest(self) -> str:
        """Return the digest of everything that goes into the image; raise InputError if a file is missing."""
        parts: list[object] = [1, self.image.base, self.image.install]
        if self.image.dockerfile is not None:
            parts += [_content(self.file, "dockerfile"), list(self._context())]
        parts += [[line, _content(path, "install")] for line, path in self.local_archives.items()]
        return sha256(json.dumps(parts).encode()).hexdigest()[:16]

    def name(self, project: str) -> str:
        """Return the image's name: registry, project and digest."""
        where = self.image.registry.rstrip("/") if self.image.registry else LOCAL_REGISTRY
        return f"{where}/{_slug(project)}:{self.digest()}"

    def _context(self) -> Iterator[list[object]]:
        if not self.folder.is_dir():
            raise InputError(
                f"image.context: {self.folder} is not a folder", hint="it is relative to the spec's folder"
            )
        # Not all patterns of .dockerignore are applied: a file that is hashed needlessly only causes one more build.
        without = [self.folder / line for line in _ignored(self.folder)]
        for entry in walk_project(self.folder, without=without, rules=False).entries:
            found = read_file(self.folder, entry) if entry.kind == "file" else None
            content = sha256(found[0]).hexdigest() if found else entry.target
            yield [os.fsencode(entry.path).hex(), entry.kind, entry.executable, content]


def write_dockerfile(base: str, install: Sequence[str], local_archives: Sequence[str] = ()) -> str:
    """Return a Dockerfile for a base and pip requirements; `local_archives` are the names of files beside it."""
    lines = [f"FROM {base}"]
    lines += [f"COPY {json.dumps([*local_archives, f'{_WHEELS}/'])}"] if local_archives else []
    if install:
        words = shlex.join(f"{_WHEELS}/{line}" if line in local_archives else line for line in install)
        # Debian and others forbid pip in the system's Python, which does no harm in a container.
        lines += [f"RUN PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install --no-cache-dir {words}"]
    return "\n".join(lines) + "\n"


def _ignored(folder: Path) -> Iterator[str]:
    """Yield the plain names in a `.dockerignore` without `!` patterns; globs are ignored."""
    try:
        lines = [line.strip() for line in (folder / ".dockerignore").read_text(errors="replace").splitlines()]
    except OSError:
        return
    if not any(line.startswith("!") for line in lines):
        yield from (line.strip("/") for line in lines if re.fullmatch(r"/?[A-Za-z0-9_.][A-Za-z0-9_./-]*", line))


def _content(path: Path, key: str) -> str:
    try:
        return sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise InputError(
            f"image.{key}: cannot read {path}: {error.strerror}", hint="it is relative to the spec's folder"
        ) from None


def _slug(project: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", project.lower()).strip("-") or "image"
