"""A real builder with its own store, and a real registry on loopback."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

IMAGES = Path(os.environ.get("DRUMLINE_CACHE") or Path.home() / ".cache/drumline-dev", "kube/images")
PYTHON, BUSYBOX = "docker.io/library/python:local", "docker.io/library/busybox:local"


class Store(NamedTuple):
    """The store of a builder's images, as environment variables that select it."""

    environ: dict[str, str]

    def run(self, *words: str) -> str:
        done = subprocess.run(words, env=self.environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def pull(self, image: str) -> None:
        """Import one of the cluster's own images, from its file."""
        archive = IMAGES / f"{image.removeprefix('docker.io/library/').removesuffix(':local')}.tar"
        assert archive.exists(), "`scripts/cluster/run --parts` makes it"
        # Such a file has no complete history, which buildah requires of a base image.
        container = self.run("buildah", "from", f"docker-archive:{archive}").strip()
        self.run("buildah", "commit", "--quiet", "--rm", "--squash", container, image)


def make_store(folder: Path) -> Store:
    """Return a new store with the cluster's images."""
    conf = folder / "storage.conf"
    conf.write_text(f'[storage]\ndriver = "overlay"\ngraphroot = "{folder}/graph"\nrunroot = "{folder}/run"\n')
    store = Store({**os.environ, "CONTAINERS_STORAGE_CONF": str(conf)})
    for image in (PYTHON, BUSYBOX):
        store.pull(image)
    return store


@contextmanager
def registry(folder: Path) -> Iterator[str]:
    """Run Debian's registry on a free port of loopback; yield its address."""
    program = shutil.which("docker-registry")
    assert program, "install docker-registry"
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    conf = folder / "registry.yml"
    conf.write_text(
        f'version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: "{folder}/blobs"}}}}\n'
        f'http: {{addr: "127.0.0.1:{port}"}}\n'
    )
    with (folder / "registry.log").open("w") as log:
        server = subprocess.Popen([program, "serve", str(conf)], stdout=log, stderr=log)
    try:
        while True:
            assert server.poll() is None, (folder / "registry.log").read_text()
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                time.sleep(0.05)
        yield f"127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()
