"""Inspect a script before it runs: whether it could notice that its framework is already imported."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator

from drumline.engine.local.warm.command import Command, NotWarm

_IMPORTS = {
    "tensorflow": ("tensorflow", "keras", "tf_keras"),
    "torch": ("torch", "lightning", "pytorch_lightning", "accelerate", "transformers"),
    "jax": ("jax", "flax", "keras"),
    "plain": (),
}
_IMPORT = re.compile(rb"^[ \t]*(?:import[ \t]+([\w., \t]+)|from[ \t]+(\.*[\w.]*)[ \t]+import)", re.MULTILINE)
# Variables that a framework, or a library that it uses, reads when it is imported.
_READ_AT_IMPORT = re.compile(
    r"(TF|XLA|JAX|KERAS|TORCH[A-Z]*|PYTORCH|CUDA|CUBLAS|CUDNN|NVIDIA|NCCL|GLOO|GRPC|OMP|GOMP|KMP|MKL|OPENBLAS|BLIS|NUMEXPR|"
    r"ONEDNN|DNNL|HF|TRANSFORMERS|TOKENIZERS|LD|DYLD|MALLOC|ABSL|TPU|AOT[A-Z]*|INDUCTOR|TRITON|SYMPY)_[A-Z0-9_]+|PYTHON[A-Z]+"
)
_READ_LATER = ("TF_CONFIG", "CUDA_VISIBLE_DEVICES", "HF_TOKEN")
# Names of variables that hold secrets.
_CREDENTIAL = re.compile(
    r"(?:.*_)?(?:TOKEN|SECRET|PASSWORD|PASSPHRASE|PASSWD|CREDENTIALS?|API_?KEY|ACCESS_KEY|PRIVATE_KEY|AUTH)(?:_.*)?"
)
_SETS = re.compile(
    rb"""(?:environ\s*\[|environ\.(?:setdefault|update)\(|putenv\()\s*[{]?\s*f?["']?([A-Za-z_][A-Za-z0-9_]*)"""
    rb"""(?:["']\]\s*=\s*["']([^"'{\\\n]*)["'][ \t]*(?=[\n#]))?"""
)
# The import of a framework may draw random numbers: JAX draws from numpy, and TensorFlow from `random`.
_SEEDS = re.compile(rb"\b(?:\w+_)?seed(?:_\w+)?\(")
_MOST_FILES = 200


def inspect_script(command: Command, framework: str, modules: Collection[str], workdir: str) -> dict[str, str]:
    """Return the variables that a script sets before it imports its framework, with their values.

    Only variables that the framework reads at import count. The warm process also imports `modules`. Files that the
    script imports from its own folder are inspected too. Raise NotWarm for a script that uses `sys.modules`, or that
    sets such a variable elsewhere or to a value that is not a plain string.
    """
    wanted = {name.encode() for name in _IMPORTS[framework]}
    uses = not wanted
    sets: dict[str, str] = {}
    for number, (path, text) in enumerate(_texts(command, workdir)):
        name = os.path.basename(path)  # noqa: PTH119
        if b"sys.modules" in text:
            raise NotWarm(f"{name} uses sys.modules")
        if b"\0" in text:
            raise NotWarm(f"{name} is not text")
        first = min((at for at, module in _imported(text) if module.partition(b".")[0] in wanted), default=None)
        uses = uses or first is not None
        if first is not None and _SEEDS.search(text, 0, first):
            raise NotWarm(f"{name} seeds random numbers before it imports {framework}")
        for match in _SETS.finditer(text):
            variable = match[1].decode()
            if not _is_read_at_import(variable):
                continue
            if number or match[2] is None:
                raise NotWarm(f"{name} sets {variable}, which is read when {framework} is imported")
            if first is None or match.start() < first:
                sets[variable] = match[2].decode(errors="replace")
            elif modules:
                raise NotWarm(f"{name} sets {variable}, which a module of warm.import may read when it is imported")
    if not uses and not command.module:
        raise NotWarm(f"it does not import {framework}")
    return sets


def check_secrets(names: Collection[str], framework: str) -> None:
    """Raise NotWarm for a secret that a framework may read when it is imported."""
    for name in sorted(names):
        if _is_read_at_import(name):
            raise NotWarm(f"{name} is a secret, and may be read when {framework} is imported")


def derived(
    assigned: Iterable[tuple[str, frozenset[str]]], is_private: Callable[[str], bool], framework: str
) -> frozenset[str]:
    """Return the variables to which a shell command assigns values of private variables, directly or indirectly.

    Raise NotWarm for one that a framework may read when it is imported.
    """
    found: set[str] = set()
    for name, sources in assigned:
        source = next((each for each in sorted(sources) if each in found or is_private(each)), None)
        if source and _is_read_at_import(name):
            raise NotWarm(f"{name} comes from {source}, and may be read when {framework} is imported")
        if source:
            found.add(name)
    return frozenset(found)


def credentials(names: Collection[str]) -> frozenset[str]:
    """Return those of `names` that look like names of secrets, and that no framework reads when it is imported."""
    return frozenset(name for name in names if _CREDENTIAL.fullmatch(name.upper()) and not _is_read_at_import(name))


def _is_read_at_import(variable: str) -> bool:
    return bool(_READ_AT_IMPORT.fullmatch(variable)) and variable not in _READ_LATER


def check_shadows(command: Command, workdir: str, loaded: Collection[str]) -> None:
    """Raise NotWarm if a file beside the script would be imported instead of a module that is already loaded."""
    folder = _folder(command, workdir)
    try:
        entries = sorted(os.listdir(folder))  # noqa: PTH208
    except OSError:
        return
    for entry in entries:
        name, dot, kind = entry.partition(".")
        if name in loaded and name != "__main__":
            package = not dot and os.path.exists(os.path.join(folder, entry, "__init__.py"))  # noqa: PTH110, PTH118
            if package or kind in ("py", "pyc") or kind.endswith("so"):
                raise NotWarm(f"{entry} beside the script shadows a module that is already loaded")


def _texts(command: Command, workdir: str) -> Iterator[tuple[str, bytes]]:
    """Yield the script and the files that it imports from its own folder, with their content."""
    folder = _folder(command, workdir)
    waiting = [os.path.join(workdir, command.path)] if command.path else list(_files(folder, command.module.encode()))  # noqa: PTH118
    seen = set(waiting)
    while waiting and len(seen) <= _MOST_FILES:
        path = waiting.pop()
        try:
            with open(path, "rb") as file:  # noqa: PTH123
                text = file.read()
        except OSError:
            continue
        yield path, text
        for _, name in _imported(text):
            for found in _files(os.path.dirname(path) if name.startswith(b".") else folder, name.lstrip(b".")):  # noqa: PTH120
                if found not in seen:
                    seen.add(found)
                    waiting.append(found)


def _folder(command: Command, workdir: str) -> str:
    """Return the folder that Python puts first in `sys.path`."""
    if command.module:
        return workdir
    return os.path.dirname(os.path.realpath(os.path.join(workdir, command.path)))  # noqa: PTH118, PTH120


def _files(folder: str, name: bytes) -> Iterator[str]:
    """Yield the files of a module with this name in a folder."""
    stem = os.path.join(folder, *os.fsdecode(name).split("."))  # noqa: PTH118
    for path in (f"{stem}.py", f"{stem}/__init__.py", f"{stem}/__main__.py"):
        if os.path.isfile(path):  # noqa: PTH113
            yield path


def _imported(text: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the modules that a text imports, with the position of each import."""
    for match in _IMPORT.finditer(text):
        if match[2] is not None:
            yield match.start(), match[2]
        else:
            yield from ((match.start(), name.split()[0]) for name in match[1].split(b",") if name.strip())
