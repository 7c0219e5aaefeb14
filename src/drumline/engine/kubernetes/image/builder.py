"""Who builds images on this machine: docker, podman or buildah, the first that really works."""

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
INSTALL = "install podman or buildah (`apt install buildah`), or start Docker's daemon; or name an image that is there"
_ANSWER_SECONDS = 30
_KINDS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.oci.image.index.v1+json",
)


class Builder(Record):
    """A program that builds and pushes images; all three are told nearly the same."""

    kind: str
    path: str

    def build(self, name: str, dockerfile: Path, context: Path) -> list[str]:
        """The command that builds an image and gives it this name."""
        return [self.path, "build", "--tag", name, "--file", str(dockerfile), str(context)]

    def push(self, name: str) -> list[str]:
        """The command that puts it where its name says; on this machine a registry needs no certificate."""
        plain = ["--tls-verify=false"] if self.kind != "docker" and is_loopback(name) else []
        return [self.path, "push", *plain, name]

    def forget(self, name: str) -> list[str]:
        """The command that takes the name away again."""
        return [self.path, "rmi", name]

    def has(self, name: str) -> bool:
        """Whether the image is in its own store."""
        words = ["inspect", "--type", "image", name] if self.kind == "buildah" else ["image", "inspect", name]
        return _works([self.path, *words])

    def is_pushed(self, name: str) -> bool:
        """Whether a registry has it; one that does not answer has not."""
        return _is_served(name) if is_loopback(name) else _works([self.path, "manifest", "inspect", name])


def find_builder(environ: Mapping[str, str]) -> Builder | None:
    """The first program that can build here; a client whose daemon is away cannot."""
    for kind in NAMES:
        path = shutil.which(kind, path=environ.get("PATH"))
        if path and _works([path, "info"], environ):
            return Builder(kind, path)
    return None


def explain_no_builder(environ: Mapping[str, str]) -> str:
    """What is missing, where nobody can build: a sentence."""
    there = [kind for kind in NAMES if shutil.which(kind, path=environ.get("PATH"))]
    if not there:
        return "nothing on this machine builds images: there is no docker, podman or buildah"
    reason = "has no daemon to talk to" if there == ["docker"] else "does not work here"
    return f"nothing on this machine builds images: {' and '.join(there)} is there and {reason}"


def is_loopback(name: str) -> bool:
    """Whether an image's registry is this machine."""
    host = name.partition("/")[0]
    return re.fullmatch(r"(localhost|127(\.\d+){3}|\[::1\])(:\d+)", host) is not None


def qualified(name: str) -> str:
    """An image's name with its registry, as a cluster would understand it: Docker Hub where none is named."""
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
        with build_opener(ProxyHandler({})).open(asked, timeout=_ANSWER_SECONDS):  # no proxy leads to this machine
            return True
    except (URLError, OSError):
        return False


def _works(command: list[str], environ: Mapping[str, str] | None = None) -> bool:
    try:
        done = subprocess.run(
            command,
            env=None if environ is None else dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # a registry may say as much as it likes
            stderr=subprocess.DEVNULL,
            timeout=_ANSWER_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
