"""The part of drumline that is sent to other machines, as one zip that is named by the hash of its content.

Its folder `lib` has the agent with the local engine; `runtime` has only `drumline.runtime`, for training scripts with a
Python that has no drumline. All code in the zip needs only the standard library.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path

import drumline

# Files and folders of the package `drumline`; tests import all of them with an interpreter that has no site-packages.
PARTS = (
    "__init__.py",
    "errors.py",
    "record.py",
    "words.py",
    "plan/__init__.py",
    "plan/bind.py",
    "plan/codec.py",
    "plan/command.py",
    "plan/name.py",
    "plan/parameters.py",
    "plan/rendezvous",
    "plan/types.py",
    "plan/version1.py",
    "run",
    "runtime",
    "engine/__init__.py",
    "engine/events.py",
    "engine/extra.py",
    "engine/interpreter.py",
    "engine/loop.py",
    "engine/notes.py",
    "engine/ports.py",
    "engine/protocol.py",
    "engine/argument_limits.py",
    "engine/tasks.py",
    "engine/tracker.py",
    "engine/untrusted.py",
    "engine/warm.py",
    "engine/local",
    "engine/project/__init__.py",
    "engine/project/beneath.py",
    "engine/agent/__init__.py",
    "engine/agent/cleanup.py",
    "engine/agent/frames.py",
    "engine/agent/launches.py",
    "engine/agent/lock.py",
    "engine/agent/logs.py",
    "engine/agent/main.py",
    "engine/agent/offer.py",
    "engine/agent/probe.py",
    "engine/agent/put.py",
    "engine/agent/receive.py",
    "engine/agent/remove.py",
    "engine/agent/replicas.py",
    "engine/agent/verbs.py",
)
_RUNTIME_PARTS = ("__init__.py", "runtime")
_EXCLUDED = tuple(
    f"engine/local/{name}.py" for name in ("doctor", "options", "output", "render")
)  # only commands need these
_OLDEST = (1980, 1, 1, 0, 0, 0)  # the time of every entry, so that the same content gives the same bytes


@cache
def package_name() -> str:
    """Return the name of the package: 16 hexadecimal digits of the hash of its content."""
    found = sha256()
    for name, data in _files():
        found.update(f"{name} {len(data)}\n".encode() + data)
    return found.hexdigest()[:16]


@cache
def package_data() -> bytes:
    """Return the package as a zip."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for name, data in _files():
            archive.writestr(zipfile.ZipInfo(name, _OLDEST), data, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _files() -> Iterator[tuple[str, bytes]]:
    package = Path(drumline.__file__).parent
    for folder, parts in (("lib", PARTS), ("runtime", _RUNTIME_PARTS)):
        for part in parts:
            path = package / part
            for each in sorted(path.rglob("*.py")) if path.is_dir() else (path,):
                name = str(each.relative_to(package))
                if name not in _EXCLUDED:
                    yield f"{folder}/drumline/{name}", each.read_bytes()
