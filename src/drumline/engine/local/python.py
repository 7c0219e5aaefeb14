"""The Python environment of a run: its interpreter, its folder, and drumline's runtime."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from drumline import runtime
from drumline.engine.protocol import Interpreter, Site
from drumline.errors import EngineError, InputError
from drumline.plan.types import Environment, Place
from drumline.record import Record
from drumline.runtime.environment import folder_of, use
from drumline.runtime.private import make_folder, write_file

_ASK = "import os, sys; print('%d.%d.%d' % sys.version_info[:3], os.path.realpath(sys._base_executable))"
_ANSWER_SECONDS = 30


class WantedEnvironment(Record):
    """An environment of this machine, built or not: its Python and requirements, and the folders to use."""

    root: str
    python: str
    requirements: tuple[str, ...]
    runtime: str

    @property
    def folder(self) -> str:
        """Return its folder, which exists once it is built."""
        return folder_of(self.root, self.python, self.requirements)

    @property
    def argv(self) -> tuple[str, ...]:
        """Return the command that builds it with drumline's own Python."""
        builder = str(Path(runtime.__file__).with_name("environment.py"))
        return (sys.executable, "-IS", builder, self.root, self.python, *self.requirements)


class RunPython:
    """The Python of one run; holds a lock on its environment, so that it is not removed."""

    def __init__(self, environment: Environment, site: Site, environ: Mapping[str, str]) -> None:
        self.environment = environment
        self.wanted = find_environment(environment, site, environ)
        self._folder = self.wanted.folder
        self._lock: int | None = None

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Return the descriptors that keepers inherit, so that the environment is not removed while replicas use it."""
        return () if self._lock is None else (self._lock,)

    def lock_if_built(self) -> bool:
        """Return whether the environment is built; if so, lock it against removal."""
        if self._lock is None:
            self._lock = use(self._folder)
        return self._lock is not None

    def require(self) -> None:
        """Lock the environment and copy the runtime; raise EngineError if it is not built."""
        if not self.lock_if_built():
            raise EngineError(f"the environment {self._folder} is gone", hint="`drumline train` builds it again")
        self.copy_runtime()

    def copy_runtime(self) -> None:
        """Copy the runtime to the folder where replicas find it."""
        copy_runtime(self.wanted.runtime)

    def applied(self, place: Place) -> Place:
        """Return the place with this environment."""
        return place.replace(python_dir=f"{self._folder}/bin", environment=self._folder, runtime=self.wanted.runtime)


def find_environment(environment: Environment, site: Site, environ: Mapping[str, str]) -> WantedEnvironment:
    """Return the environment that a plan needs on this machine; raise InputError if no Python fits."""
    cache = site.cache or site.home / "cache"
    python = find_python(environment.pythons, site.directory, environ, site.python)
    return WantedEnvironment(str(cache / "environments"), python, environment.requirements, runtime_folder(site))


def runtime_folder(site: Site) -> str:
    """Return the folder for a copy of drumline's runtime; its name depends on the content."""
    cache = site.cache or site.home / "cache"
    return str(cache / f"runtime-{_digest()}")


def find_python(
    pythons: Sequence[str], directory: Path, environ: Mapping[str, str], default: Interpreter | None = None
) -> str:
    """Return the path of the Python for these versions or paths, which are in the order of preference.

    It is the interpreter of `default` if that has one of the versions, or if none is named; else the first that exists.
    Raise InputError if there is none.
    """
    if not any("/" in wanted for wanted in pythons):
        version, base = _identify(default)
        if not pythons or any(_is(version, wanted) for wanted in pythons):
            return base
    for wanted in pythons:
        if "/" in wanted:
            path = os.path.realpath(directory / wanted)
            if Path(path).is_file() and os.access(path, os.X_OK):
                return path  # not executed: only a run executes what a spec names
            raise InputError(f"environment.python: {path} is not a program", hint="name a Python, or its version")
        for path in _candidates(wanted, environ):
            if (answer := _ask(path)) and _is(answer[0], wanted):
                return answer[1]
    versions = pythons[0] if len(pythons) == 1 else f"{pythons[-1]} to {pythons[0]}"
    raise InputError(
        f"the environment needs Python {versions}, which is not on this machine",
        hint=f"install it so that `python{pythons[0]}` is found, or `uv python install {pythons[0]}`,"
        " or name an interpreter with `environment: {python: /path/of/python}`",
    )


def copy_runtime(folder: str) -> None:
    """Copy drumline's runtime to a folder for a Python without drumline; idempotent."""
    package = Path(folder, "drumline")
    if package.is_dir():
        return
    try:
        make_folder(package.parent)
        with tempfile.TemporaryDirectory(dir=package.parent) as scratch:
            for path, data in _files():
                file = Path(scratch, "drumline", path)
                make_folder(file.parent)
                write_file(file, data)
            Path(scratch, "drumline").rename(package)
    except OSError as error:
        if not package.is_dir():  # another process may have been faster
            raise EngineError(f"cannot write {package}: {error.strerror}") from None


def _identify(python: Interpreter | None) -> tuple[str, str]:
    """Return the version of a Python and the path of its base interpreter; for None, those of drumline's own Python."""
    if python and python.folder != str(Path(sys.executable).parent) and (answer := _ask(python.path)):
        return answer
    base = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
    return "{}.{}.{}".format(*sys.version_info[:3]), base


def _files() -> Iterator[tuple[str, bytes]]:
    package = Path(runtime.__file__).parent
    yield "__init__.py", (package.parent / "__init__.py").read_bytes()
    for path in sorted(package.glob("*.py")):
        yield f"runtime/{path.name}", path.read_bytes()


def _digest() -> str:
    return sha256(b"".join(f"{name} {len(data)}\n".encode() + data for name, data in _files())).hexdigest()[:16]


def _candidates(version: str, environ: Mapping[str, str]) -> Iterator[str]:
    minor = ".".join(version.split(".")[:2])
    for folder in environ.get("PATH", os.defpath).split(os.pathsep):
        path = f"{folder}/python{minor}"
        if os.access(path, os.X_OK):
            yield path
    if uv := shutil.which("uv", path=environ.get("PATH")):
        found = subprocess.run(
            [uv, "python", "find", "--no-project", "--no-python-downloads", version],
            cwd="/",  # files of the project must not choose the interpreter
            capture_output=True,
            text=True,
            check=False,
        )
        if found.returncode == 0:
            yield found.stdout.strip()


def _ask(path: str) -> tuple[str, str] | None:
    """Return the version and real path of an interpreter; None if it does not run, such as a shim without a target."""
    with suppress(OSError, ValueError, subprocess.TimeoutExpired):
        answer = subprocess.run(
            [path, "-IS", "-c", _ASK], capture_output=True, text=True, check=False, timeout=_ANSWER_SECONDS
        )
        version, _, real = answer.stdout.strip().partition(" ")
        if answer.returncode == 0 and re.fullmatch(r"3\.\d+\.\d+", version):
            return version, real
    return None


def _is(version: str, wanted: str) -> bool:
    return f"{version}.".startswith(f"{wanted}.")
