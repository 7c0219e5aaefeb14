"""The environment of a spec: acceptable versions of Python, and requirements."""

from __future__ import annotations

import re
from collections.abc import Iterator

from drumline.plan.types import Environment
from drumline.spec.types import Spec

Path = tuple[str | int, ...]

# Replicas import `drumline.runtime`, which needs Python 3.9.
OLDEST_PYTHON = 9
# The Pythons for which TensorFlow has wheels: for TensorFlow 2.N, Python 3.A to 3.B.
_PYTHONS_OF_TENSORFLOW = {
    5: (6, 9), 6: (6, 9), 7: (7, 9), 8: (7, 10), 9: (7, 10), 10: (7, 10), 11: (7, 10), 12: (8, 11), 13: (8, 11),
    14: (9, 11), 15: (9, 11), 16: (9, 12), 17: (9, 12), 18: (9, 12), 19: (9, 12), 20: (9, 13),
}  # fmt: skip
_FIRST_WITH_CUDA_WHEELS = 14
_X86_LINUX = "sys_platform == 'linux' and platform_machine == 'x86_64'"
_NOT_X86_LINUX = "sys_platform != 'linux' or platform_machine != 'x86_64'"


def environment_of(spec: Spec) -> Environment | None:
    """Return the environment of the replicas; None if they use the Python that launches them."""
    own, version = spec.environment, spec.tensorflow.version
    if own is None and version is None:
        return None
    lines = own.requirements if own and isinstance(own.requirements, tuple) else ()
    python = (own.python,) if own and own.python else pythons_of_tensorflow(version) if version else ()
    return Environment((*_tensorflow(spec, version), *lines) if version else lines, python)


def environment_problems(spec: Spec) -> Iterator[tuple[Path, str]]:
    """Yield the problems of the environment of a spec, each with the path of its value."""
    version = spec.tensorflow.version
    if version and spec.framework != "tensorflow":
        yield ("tensorflow", "version"), f"installs TensorFlow, but the framework is `{spec.framework}`"
    elif version and _minor(version) < min(_PYTHONS_OF_TENSORFLOW):
        yield ("tensorflow", "version"), f"TensorFlow {version} runs on no Python from 3.{OLDEST_PYTHON} on"
    python = spec.environment.python if spec.environment else None
    if python is None or "/" in python:
        return
    path = ("environment", "python")
    if not re.fullmatch(r"3\.[0-9]{1,2}(\.[0-9]{1,2})?", python):
        yield path, f"expected a version such as 3.11, or the path of an interpreter, got `{python}`"
    elif _minor(python) < OLDEST_PYTHON:
        yield path, f"`drumline.runtime` needs Python 3.{OLDEST_PYTHON} or newer, not {python}"
    elif version and (known := pythons_of_tensorflow(version)) and f"3.{_minor(python)}" not in known:
        yield path, f"TensorFlow {version} runs on Python {known[-1]} to {known[0]}, not on {python}"


def pythons_of_tensorflow(version: str) -> tuple[str, ...]:
    """Return the Pythons for which this TensorFlow has wheels, newest first; empty if they are not known."""
    first, last = _PYTHONS_OF_TENSORFLOW.get(_minor(version), (0, -1))
    return tuple(f"3.{minor}" for minor in range(last, max(first, OLDEST_PYTHON) - 1, -1))


def _tensorflow(spec: Spec, version: str) -> tuple[str, ...]:
    """Return the requirements for TensorFlow: with CUDA if a replica claims a GPU, else the smaller CPU build."""
    exact = f"=={version}" if version.count(".") > 1 else f"=={version}.*"
    if _claims_gpus(spec):
        extra = "[and-cuda]" if _minor(version) >= _FIRST_WITH_CUDA_WHEELS else ""
        return (f"tensorflow{extra}{exact}",)
    return (f"tensorflow-cpu{exact}; {_X86_LINUX}", f"tensorflow{exact}; {_NOT_X86_LINUX}")


def _claims_gpus(spec: Spec) -> bool:
    written = spec.roles
    roles = [role for role in (written.chief, written.master, written.worker, written.ps, written.evaluator) if role]
    claims = [spec.resources, *(role.resources for role in roles), *(role.first.resources for role in roles)]
    return any(each.gpus for each in claims if each)


def _minor(version: str) -> int:
    return int(version.split(".")[1])
