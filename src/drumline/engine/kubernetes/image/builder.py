"""The program that builds images on this machine: the first of docker, podman and buildah that works."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from urllib.error import URLError
from urllib.request import ProxyHandler, Request, build_opener

from drumline.record import Record

NAMES = ("docker", "podman", "buildah")
INSTALL = "install podman or buildah (`apt install buildah`), or start Docker's daemon; or name an existing image"
_ANSWER_SECONDS = 30
_KINDS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.oci.image.index.v1+json",
)


class Builder(Record):
    """A program that builds and pushes images."""

    kind: str
    path: str

    def build(self, name: str, dockerfile: Path, context: Path) -> list[str]:
        """Return the command that builds an image under this name."""
        return [self.path, "build", "--tag", name, "--file", str(dockerfile), str(context)]

    def push(self, name: str) -> list[str]:
        """Return the command that pushes an image; a registry of this machine needs no TLS."""
        plain = ["--tls-verify=false"] if self.kind != "docker" and is_loopback(name) else []
        return [self.path, "push", *plain, name]

    def forget(self, name: str) -> list[str]:
        """Return the command that removes the name of an image."""
        return [self.path, "rmi", name]

    def has(self, name: str) -> bool:
        """Return whether the image is in the builder's own store."""
        words = ["inspect", "--type", "image", name] if self.kind == "buildah" else ["image", "inspect", name]
        return _works([self.path, *words])

    def is_pushed(self, name: str) -> bool:
        """Return whether the registry has the image; False if it does not answer."""
        return _is_served(name) if is_loopback(name) else _works([self.path, "manifest", "inspect", name])


def find_builder(environ: Mapping[str, str]) -> Builder | None:
    """Return the first builder that works; a docker client without a daemon does not."""
    for kind in NAMES:
        path = shutil.which(kind, path=environ.get("PATH"))
        if path and _works([path, "info"], environ):
            return Builder(kind, path)
    return None


def explain_no_builder(environ: Mapping[str, str]) -> str:
    """Return why no image can be built on this machine."""
    installed = [kind for kind in NAMES if shutil.which(kind, path=environ.get("PATH"))]
    if not installed:
        return "images cannot be built on this machine: docker, podman and buildah are missing"
    reason = "has no running daemon" if installed == ["docker"] else "does not work"
    return f"images cannot be built on this machine: {' and '.join(installed)} is installed, but {reason}"


def is_loopback(name: str) -> bool:
    """Return whether the registry of an image is on this machine."""
    host = name.partition("/")[0]
    return re.fullmatch(r"(localhost|127(\.\d+){3}|\[::1\])(:\d+)", host) is not None


def qualified(name: str) -> str:
    """Return the image's name with its registry: Docker Hub where it has none."""
    first, slash, _ = name.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return name
    return f"docker.io/{name}" if slash else f"docker.io/library/{name}"


def _is_served(name: str) -> bool:
    host, _, rest = name.partition("/")
    repository, _, tag = rest.rpartition(":")
    asked = Request(
        f"http://{host}/v2/{repository}/manifests/{tag}", method="HEAD", headers={"Accept": ", ".join(_KINDS)}
    )
    try:
        with build_opener(ProxyHandler({})).open(asked, timeout=_ANSWER_SECONDS):  # without proxies
            return True
    except (URLError, OSError):
        return False


def _works(command: list[str], environ: Mapping[str, str] | None = None) -> bool:
    try:
        done = subprocess.run(
            command,
            env=None if environ is None else dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_ANSWER_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
