"""drumline as it is carried to a host: the local engine with what that needs, by its content, so that none is ever old.

Beside it lies the runtime alone, for training scripts whose Python has no drumline.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path

import drumline

# Folders and files of the package. What is in them knows the standard library and each other, nothing else: there is
# a test for that.
PARTS = (
    "__init__.py",
    "errors.py",
    "record.py",
    "words.py",
    "plan/__init__.py",
    "plan/bind.py",
    "plan/codec.py",
    "plan/command.py",
    "plan/hosts.py",
    "plan/name.py",
    "plan/parameters.py",
    "plan/rendezvous",
    "plan/types.py",
    "plan/version1.py",
    "run",
    "runtime",
    "engine/__init__.py",
    "engine/extra.py",
    "engine/interpreter.py",
    "engine/ports.py",
    "engine/protocol.py",
    "engine/strings.py",
    "engine/local",
    "engine/ssh/__init__.py",
    "engine/ssh/follower.py",
    "engine/ssh/host.py",
    "engine/ssh/lock.py",
    "engine/ssh/shelf.py",
    "engine/ssh/wire.py",
    "supervise/__init__.py",
    "supervise/host.py",
    "supervise/loop.py",
)
_ALONE = ("__init__.py", "runtime")
_WITHOUT = ("engine/local/doctor.py", "engine/local/output.py", "engine/local/render.py")  # for who sits at a terminal

# What the host's Python is first told: to say which it is, to take the package if it has none, and to become the hand.
# Any Python of the last fifteen years can read it.
BOOT = r"""
import json, os, sys
folder, name = os.path.expanduser(sys.argv[1]), sys.argv[2]
def say(**words):
    os.write(1, b"drumline-host " + json.dumps(words).encode() + b"\n")
if sys.version_info < (3, 11):
    say(old="%d.%d.%d" % sys.version_info[:3])
    sys.exit(0)
home = os.path.join(folder, name)
def hold(): # whoever removes old packages leaves alone what is held, or was used of late
    import fcntl
    try:
        held = os.open(home, os.O_RDONLY)
        try:
            fcntl.flock(held, fcntl.LOCK_SH)
            os.utime(home)
        except OSError: # where nothing can be locked, nothing is removed
            pass
        return os.path.samestat(os.fstat(held), os.stat(home))
    except OSError:
        return False
try:
    if not hold():
        import io, shutil, tarfile, tempfile
        say(wants=True)
        size = b""
        while not size.endswith(b"\n"):
            size += os.read(0, 1) or sys.exit(1)
        data = b""
        while len(data) < int(size):
            data += os.read(0, 1 << 20) or sys.exit(1)
        mask = os.umask(0o077)
        os.makedirs(folder, 0o700, exist_ok=True)
        os.umask(mask)
        scratch = tempfile.mkdtemp(dir=folder)
        try:
            with tarfile.open(fileobj=io.BytesIO(data)) as archive:
                for member in archive:
                    path = os.path.join(scratch, member.name)
                    os.makedirs(os.path.dirname(path), exist_ok=True)
                    with open(path, "wb") as file:
                        file.write(archive.extractfile(member).read())
            try:
                os.rename(scratch, home)
            except OSError:
                if not os.path.isdir(home):
                    raise
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        hold()
    for path in (os.path.dirname(folder), folder, home): # else others could exchange what is run, here and in a run
        found = os.stat(path)
        if not {found.st_uid, os.lstat(path).st_uid} <= {0, os.geteuid()} or found.st_mode & 0o002:
            say(refused="%s belongs to another user, or all users may write there" % path)
            sys.exit(0)
except OSError as error:
    say(refused="%s: %s" % (error.filename or folder, error.strerror))
    sys.exit(0)
sys.path.insert(0, os.path.join(home, "lib"))
sys.argv[1:] = []
from drumline.supervise.host import main
main()
"""


@cache
def package_name() -> str:
    """The name that its content gives it."""
    found = sha256()
    for name, data in _files():
        found.update(f"{name} {len(data)}\n".encode() + data)
    return found.hexdigest()[:16]


@cache
def package_data() -> bytes:
    """What is carried, as an archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=6) as archive:
        for name, data in _files():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def _files() -> Iterator[tuple[str, bytes]]:
    package = Path(drumline.__file__).parent
    for folder, parts in (("lib", PARTS), ("runtime", _ALONE)):
        for part in parts:
            path = package / part
            for each in sorted(path.rglob("*.py")) if path.is_dir() else (path,):
                name = str(each.relative_to(package))
                if name not in _WITHOUT:
                    yield f"{folder}/drumline/{name}", each.read_bytes()
