"""Build an image and push it; run as `python -m drumline.engine.kubernetes.image.build NAME LOCK DIRECTORY IMAGE`.

An image that exists under that name is not built or pushed again. If several runs need the same image, one builds it
and the others wait.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from drumline.engine.kubernetes.image.builder import INSTALL, Builder, explain_no_builder, find_builder, qualified
from drumline.engine.kubernetes.image.recipe import Recipe, write_dockerfile
from drumline.engine.kubernetes.plan_options import Image
from drumline.errors import InputError


class BuildError(Exception):
    """An image could not be built or pushed; the message says why."""


def provide_image(name: str, recipe: Recipe, builder: Builder) -> None:
    """Build an image under this name and push it, unless that was done before; raise BuildError if it fails."""
    if recipe.image.registry and builder.is_pushed(name):
        report(f"{name} is in the registry already")
        return
    if builder.has(name):
        report(f"{name} exists already, built by {builder.kind}")
    else:
        _build(name, recipe, builder)
    if recipe.image.registry:
        began = time.monotonic()
        report(f"pushing {name}")
        host = name.partition("/")[0]
        _run(builder.push(name), f"if a login is needed: `{builder.kind} login {host}`")
        report(f"pushed {name} in {time.monotonic() - began:.0f} s")


def report(text: str) -> None:
    """Write a line to the log of the build, and flush it."""
    sys.stdout.write(f"drumline: {text}\n")
    sys.stdout.flush()


def _build(name: str, recipe: Recipe, builder: Builder) -> None:
    began = time.monotonic()
    report(f"building {name} with {builder.kind}")
    _require_same(name, recipe)
    with ExitStack() as stack:
        file, context = recipe.file, recipe.folder
        if recipe.image.base is not None:
            context = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="drumline-image-")))
            file = context / "Dockerfile"
            _fill(context, recipe, builder)
            report(f"Dockerfile: {file.read_text().strip()}")
        _run(builder.build(name, file, context))
    try:
        _require_same(name, recipe)
    except BuildError:
        quiet = subprocess.DEVNULL
        subprocess.run(builder.forget(name), stdin=quiet, stdout=quiet, stderr=quiet, check=False)
        raise
    report(f"built {name} in {time.monotonic() - began:.0f} s")


def _fill(context: Path, recipe: Recipe, builder: Builder) -> None:
    """Write the Dockerfile, and copy the files beside it that it needs."""
    assert recipe.image.base is not None
    base = recipe.image.base if builder.has(recipe.image.base) else qualified(recipe.image.base)
    names = {}
    for line, path in recipe.local_archives.items():
        names[line] = path.name
        shutil.copyfile(path, context / path.name)
    install = [names.get(line, line) for line in recipe.image.install]
    (context / "Dockerfile").write_text(write_dockerfile(base, install, list(names.values())))


def _require_same(name: str, recipe: Recipe) -> None:
    """Raise BuildError if the files have changed since the name was made from them."""
    try:
        digest = recipe.digest()
    except InputError as error:
        raise BuildError(error.message) from None
    if not name.endswith(f":{digest}"):
        raise BuildError(
            "its files have changed since the run was launched; `drumline train` builds them as they are now"
        )


def _run(command: Sequence[str], hint: str = "") -> None:
    code = subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT, check=False).returncode
    if code:
        words = f"`{shlex.join([os.path.basename(command[0]), *command[1:2]])}` failed (exit code {code})"  # noqa: PTH119
        raise BuildError(f"{words}; {hint}" if hint else words)


def main(name: str, lock: str, directory: str, image: str) -> int:
    """Provide the image that `image` describes as JSON, with paths relative to the directory; return the exit code."""
    environ = os.environ
    values = json.loads(image)
    wanted = Recipe(directory, Image(**{**values, "install": tuple(values["install"])}))
    builder = find_builder(environ)
    if builder is None:
        report(f"{explain_no_builder(environ)}; {INSTALL}")
        return 1
    try:
        Path(lock).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with Path(lock).open("w") as held:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                report(f"{name} is being built by another run; waiting for it")
                fcntl.flock(held, fcntl.LOCK_EX)
            provide_image(name, wanted, builder)
    except BuildError as error:
        report(f"cannot build {name}: {error}")
        return 1
    except OSError as error:
        report(f"cannot build {name}: {error.strerror}: {error.filename}")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:5]))
