"""What an image is made of, and the name that follows from it: the same content has the same name."""

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

LOCAL_REGISTRY = "localhost/drumline"  # of images that stay in the builder's own store
_WHEELS = "/tmp/drumline-install"
_ARCHIVES = (".whl", ".tar.gz", ".zip")


class Recipe(Record):
    """What to build: a file of the user's in its folder, or a base with packages on top."""

    directory: str  # of the spec; the paths are relative to it
    image: Image

    @property
    def file(self) -> Path:
        """The user's own Dockerfile."""
        return Path(self.directory, self.image.dockerfile or "Dockerfile")

    @property
    def folder(self) -> Path:
        """What the builder may copy from."""
        return Path(self.directory, self.image.context)

    @property
    def local_archives(self) -> dict[str, Path]:
        """Files of the project among what is installed, by what was asked for."""
        found = {}
        for line in self.image.install:
            path = Path(self.directory, line)
            if line.endswith(_ARCHIVES) and "://" not in line and " @ " not in line:
                found[line] = path
        return found

    def digest(self) -> str:
        """Of everything that goes into it; raise InputError if something is not there."""
        parts: list[object] = [1, self.image.base, self.image.install]
        if self.image.dockerfile is not None:
            parts += [_content(self.file, "dockerfile"), list(self._context())]
        parts += [[line, _content(path, "install")] for line, path in self.local_archives.items()]
        return sha256(json.dumps(parts).encode()).hexdigest()[:16]

    def name(self, project: str) -> str:
        """What the image is called: where it goes, whose it is, what is in it."""
        where = self.image.registry.rstrip("/") if self.image.registry else LOCAL_REGISTRY
        return f"{where}/{_slug(project)}:{self.digest()}"

    def _context(self) -> Iterator[list[object]]:
        if not self.folder.is_dir():
            raise InputError(f"image.context: {self.folder} is no folder", hint="it is relative to the spec's folder")
        # Looked at less closely than the builder does: what is hashed in vain only means a build more.
        without = [self.folder / line for line in _ignored(self.folder)]
        for entry in walk_project(self.folder, without=without, rules=False).entries:
            found = read_file(self.folder, entry) if entry.kind == "file" else None
            content = sha256(found[0]).hexdigest() if found else entry.target
            yield [os.fsencode(entry.path).hex(), entry.kind, entry.executable, content]


def write_dockerfile(base: str, install: Sequence[str], local_archives: Sequence[str] = ()) -> str:
    """A Dockerfile for a base and what pip installs on top; `carried` are files that lie beside it, by their names."""
    lines = [f"FROM {base}"]
    lines += [f"COPY {json.dumps([*local_archives, f'{_WHEELS}/'])}"] if local_archives else []
    if install:
        words = shlex.join(f"{_WHEELS}/{line}" if line in local_archives else line for line in install)
        # Whoever keeps a system's Python from pip means a system that lives longer than a container.
        lines += [f"RUN PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install --no-cache-dir {words}"]
    return "\n".join(lines) + "\n"


def _ignored(folder: Path) -> Iterator[str]:
    """Plain names in a `.dockerignore` that takes nothing back; globs are left alone."""
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
