"""The verb `receive`: write a folder on this host, completely or not at all; only missing contents are sent.

A request is followed by pieces of contents, which are named by their hashes, and by the manifest of the folder if it
has one. The answer lists the missing contents, or confirms that the folder is written. Contents stay in a store for
later requests.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import io
import json
import os
import shutil
import stat
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from typing import Any, BinaryIO, NamedTuple

from drumline.engine.project.beneath import Beneath

_PRUNE_SECONDS = 3600.0  # between two updates of the time of use


class SpoiledError(Exception):
    """The contents in the store have changed since they were stored."""


class Store:
    """A folder of contents of files by their hash; locked until `close`, so that it is not pruned meanwhile."""

    def __init__(self, folder: str, sender: str) -> None:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        self.folder = folder
        self._sender = sender
        self._lock = os.open(f"{folder}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        _flock(self._lock, fcntl.LOCK_SH)

    def close(self) -> None:
        """Release the lock."""
        os.close(self._lock)

    def path(self, digest: str) -> str:
        """Return the path of the complete contents with this hash."""
        return f"{self.folder}/{digest[:2]}/{digest[2:]}"

    def has(self, digest: str) -> bool:
        """Return whether the contents exist; they count as used now."""
        with suppress(FileNotFoundError):
            os.utime(self.path(digest))
            return True
        return False

    def take(self, digest: str, offset: int, data: bytes, size: int) -> bool:
        """Add a piece of contents; return False if it is the last one and all pieces together have another hash."""
        path = self.path(digest)
        part = f"{path}.{self._sender}.part"
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        is_good = False
        try:
            with os.fdopen(descriptor, "r+b") as file:
                file.truncate(offset)
                file.seek(offset)
                file.write(data)
            is_good = offset + len(data) < size or _digest_of(part) == digest
        finally:
            if not is_good:
                os.unlink(part)
        if is_good and offset + len(data) == size:
            os.rename(part, path)
        return is_good

    def copy(self, digest: str, target: str) -> None:
        """Copy the contents to a file; raise SpoiledError if they have changed."""
        found = hashlib.sha256()
        with open(self.path(digest), "rb") as source, open(target, "xb") as file:
            while piece := source.read(1 << 20):
                found.update(piece)
                file.write(piece)
        if found.hexdigest() != digest:
            raise SpoiledError

    def is_sound(self, digest: str) -> bool:
        """Return whether the contents are unchanged; remove them if not."""
        if _digest_of(self.path(digest)) == digest:
            return True
        os.unlink(self.path(digest))
        return False

    def prune(self, keep_seconds: float, keep_bytes: int) -> None:
        """Remove contents that were not used for this time, and the oldest ones above this size in all.

        Do nothing while another process uses the store, or shortly after an earlier call.
        """
        now = time.time()
        note = f"{self.folder}/pruned"
        if os.path.exists(note) and 0 <= now - os.stat(note).st_mtime < min(_PRUNE_SECONDS, keep_seconds):
            return
        if not _flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB):
            return
        open(note, "wb").close()
        paths = (os.path.join(at, name) for at, _, names in os.walk(self.folder) if at != self.folder for name in names)
        for known, path in sorted(((os.stat(path), path) for path in paths), key=lambda each: -each[0].st_mtime):
            keep_bytes -= known.st_size
            if keep_bytes < 0 or now - known.st_mtime > keep_seconds:
                os.unlink(path)


class Entry(NamedTuple):
    """The values of one path in a manifest; an entry that differs only in its time is not written again."""

    kind: str
    content: str = ""  # the hash of a file, the target of a link
    executable: bool = False
    mtime_ns: int = 0
    size: int = -1

    def is_like(self, other: Entry | None) -> bool:
        """Return whether an entry need not be written again to become the other one."""
        own = (self.kind, self.content, self.executable)
        return other is not None and own == (other.kind, other.content, other.executable)


Manifest = dict[str, Entry]


class Target:
    """A folder that is changed to match a manifest; it is locked until `close`.

    Files that were never sent there stay; with `mirror`, all files that are not in the manifest are removed.
    """

    def __init__(self, folder: str, mirror: Manifest | None) -> None:
        os.makedirs(os.path.dirname(folder), mode=0o700, exist_ok=True)
        self._folder = folder
        self._note = f"{folder}.carried"
        self._lock = os.open(f"{folder}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _flock(self._lock, fcntl.LOCK_EX)
            self._is_there = os.path.isdir(folder)
            self._known: Manifest = {}
            if self._is_there:
                self._known = _read_note(self._note) if mirror is None else _scan(folder, mirror)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the lock."""
        os.close(self._lock)

    def changed(self, manifest: Manifest) -> Manifest:
        """Return the entries that have to be written."""
        return {path: entry for path, entry in manifest.items() if not entry.is_like(self._known.get(path))}

    def lay_out(self, manifest: Manifest, store: Store) -> int:
        """Write the changed entries and return their number; files are staged first, so a full disk changes nothing."""
        changed, gone = self.changed(manifest), [path for path in self._known if path not in manifest]
        if self._is_there and not changed and not gone:
            return 0
        scratch = f"{self._folder}.new"
        shutil.rmtree(scratch, ignore_errors=True)  # left from a connection that broke
        os.mkdir(scratch, 0o700)
        try:
            staged = {}
            for number, (path, entry) in enumerate(changed.items()):
                staged[path] = str(number)
                _stage(entry, store, f"{scratch}/{number}")
            # While files are moved the folder matches no manifest; after an interruption the next request writes all
            # files.
            between = dict.fromkeys((*self._known, *manifest), Entry("unknown"))
            for name, content in (("note", manifest), ("between", between)):
                private = os.open(f"{scratch}/{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with os.fdopen(private, "w", encoding="utf-8") as file:
                    json.dump(content, file)
            if self._is_there:
                os.rename(f"{scratch}/between", self._note)
                _place(scratch, staged, self._folder, changed, gone)
            else:
                os.mkdir(f"{scratch}/folder", 0o755)
                _place(scratch, staged, f"{scratch}/folder", changed, [])
                os.rename(f"{scratch}/folder", self._folder)
            os.rename(f"{scratch}/note", self._note)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        return len(changed)


def _stage(entry: Entry, store: Store, path: str) -> None:
    if entry.kind == "link":
        os.symlink(entry.content, path)
    elif entry.kind == "file":
        store.copy(entry.content, path)
        os.chmod(path, 0o755 if entry.executable else 0o644)
        os.utime(path, ns=(entry.mtime_ns, entry.mtime_ns))


def _place(scratch: str, staged: dict[str, str], folder: str, entries: Manifest, gone: list[str]) -> None:
    """Remove paths that are no longer sent, except folders with other files; then move the staged files."""
    with Beneath(scratch) as source, Beneath(folder) as target:
        for path in sorted(gone, reverse=True):
            target.remove(path)
        for path, entry in sorted(entries.items(), key=lambda each: os.fsencode(each[0])):
            if entry.kind == "folder":
                target.make_folder(path)
            else:
                source.move(staged[path], target, path)


def _scan(folder: str, wanted: Manifest) -> Manifest:
    """Return the existing entries; a file with the expected size and time is assumed to have the expected content."""
    found: Manifest = {}
    with Beneath(folder) as root:
        for path, known in root.walk():
            mode, like = known.st_mode, wanted.get(path)
            if stat.S_ISREG(mode):
                is_same = like and like[3:] == (known.st_mtime_ns, known.st_size)
                content = like.content if like and is_same else _digest_beneath(root, path)
                found[path] = Entry("file", content, bool(mode & stat.S_IXUSR))
            elif stat.S_ISLNK(mode):
                found[path] = Entry("link", root.readlink(path) or "")
            else:
                found[path] = Entry("folder" if stat.S_ISDIR(mode) else "other")
    return found


def _digest_beneath(root: Beneath, path: str) -> str:
    with os.fdopen(root.open(path, os.O_RDONLY), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read(manifest: bytes) -> Manifest:
    return {path: Entry(*rest) for path, rest in json.loads(manifest).items()}


def _read_note(note: str) -> Manifest:
    with suppress(OSError, ValueError), open(note, "rb") as file:
        return _read(file.read())
    return {}  # unknown: all files are written


def _digest_of(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flock(descriptor: int, how: int) -> bool:
    """Lock a file; return False if another process holds the lock, True also on a file system without locks."""
    try:
        fcntl.flock(descriptor, how)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
            raise
    return True


def _exactly(stream: BinaryIO, size: int) -> bytes:
    if len(data := stream.read(size)) < size:
        raise ValueError("a request with too few bytes")
    return data


def receive(request: Mapping[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
    """Store the sent contents, and write the folder if a manifest was sent and none of its contents is missing."""
    try:
        return _receive(request, io.BytesIO(data)), b""
    except OSError as error:
        error.filename = error.filename or request["folder"]
        if request["expendable"] and error.errno in (errno.ENOSPC, errno.EDQUOT):
            shutil.rmtree(os.path.expanduser(request["store"]), ignore_errors=True)
        raise


def _receive(request: Mapping[str, Any], stream: BinaryIO) -> dict[str, Any]:
    with closing(Store(os.path.expanduser(request["store"]), request["sender"])) as store:
        return _take(request, stream, store)


def _take(request: Mapping[str, Any], stream: BinaryIO, store: Store) -> dict[str, Any]:
    taken = [(digest, store.take(digest, at, _exactly(stream, n), size)) for digest, at, n, size in request["pieces"]]
    damaged = [digest for digest, is_good in taken if not is_good]
    if not request["manifest_bytes"]:
        return {"damaged": damaged}
    manifest = _read(_exactly(stream, request["manifest_bytes"]))
    folder = os.path.expanduser(request["folder"])
    with closing(Target(folder, manifest if request["mirror"] else None)) as target:
        wanted = {entry.content for entry in target.changed(manifest).values() if entry.kind == "file"}
        missing = [digest for digest in sorted(wanted) if not store.has(digest)]
        room = os.statvfs(store.folder)
        answer: dict[str, Any] = {"folder": folder, "free_bytes": room.f_bavail * room.f_frsize, "damaged": damaged}
        if missing:
            return {**answer, "missing": missing}
        try:
            answer["written"] = target.lay_out(manifest, store)
        except SpoiledError:
            return {**answer, "missing": [digest for digest in sorted(wanted) if not store.is_sound(digest)]}
    if request["expendable"]:
        shutil.rmtree(store.folder, ignore_errors=True)
    else:
        store.prune(request["keep_seconds"], request["keep_bytes"])
    return {**answer, "missing": []}
