"""Files, folders and links beneath one folder, by paths that cannot lead out of it.

Each name of a path is opened relative to the folder before it, and no symbolic link is followed. The content of the
folder is not trusted, and may change while a path is resolved. This file is also used on hosts: standard library only.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_WAIT = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a FIFO is opened without waiting for a writer
_MOST_NAMES = 64  # in a path that another machine has sent
_MOST_PATH_BYTES = 2048


class OutsideError(ValueError):
    """A path leads out of its folder, or is no valid path."""


def split(path: str) -> list[str]:
    """Return the names in a relative path; raise OutsideError for one that is absolute, has `..`, or is invalid."""
    names = path.split("/")
    for name in names:
        if name in ("", ".", "..") or "\0" in name:
            raise OutsideError(f"{path!r} does not lie in its folder")
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise OutsideError(f"{path!r} is not the name of a file") from None
    return names


def require_short(path: str) -> None:
    """Raise OutsideError for a path so deep or long that its removal, reading or copying could fail or take very long.

    File systems allow such paths, but Python's functions for trees are recursive and system calls refuse long paths.
    """
    if path.count("/") >= _MOST_NAMES or len(os.fsencode(path)) > _MOST_PATH_BYTES:
        raise OutsideError(f"{path[:100]!r}… is a path that is too deep or too long")


def stays_beneath(path: str, target: str) -> bool:
    """Return whether a link at this path with this target cannot lead out of the folder, even through other such links.

    `..` is allowed only at the beginning of the target: after the name of another link it could lead anywhere.
    """
    if not target or "\0" in target or target.startswith("/"):
        return False
    with suppress(UnicodeEncodeError):
        os.fsencode(target)
        names = [name for name in target.split("/") if name not in ("", ".")]
        climbs = next((at for at, name in enumerate(names) if name != ".."), len(names))
        return climbs < len(split(path)) and ".." not in names[climbs:]
    return False


class Beneath:
    """One folder, held open; every path is relative to it."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Open a folder; its own path is trusted, and may lead through links."""
        self._root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._folder = os.fspath(folder)

    def __enter__(self) -> Beneath:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the folder."""
        os.close(self._root)

    def make_folder(self, path: str) -> None:
        """Make a folder and its parents; replace a file or link at this path, and raise OSError for one above it."""
        names = split(path)
        try:
            self._make_last(names)
        except FileNotFoundError:  # a parent folder is missing
            for depth in range(1, len(names)):
                with suppress(FileExistsError), self._parent(names[:depth]) as (parent, name):
                    os.mkdir(name, dir_fd=parent)
            self._make_last(names)

    def _make_last(self, names: list[str]) -> None:
        with self._parent(names) as (parent, name):
            kind = _kind(name, parent)
            if kind == stat.S_IFDIR:
                return
            if kind is not None:
                os.unlink(name, dir_fd=parent)
            with suppress(FileExistsError):  # created meanwhile
                os.mkdir(name, dir_fd=parent)

    def open(self, path: str, flags: int, mode: int = 0o666) -> int:
        """Open a regular file and return its descriptor; raise OSError for a link, a folder or a device."""
        with self._parent(split(path)) as (parent, name):
            descriptor = os.open(name, flags | _NO_WAIT, mode, dir_fd=parent)
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                os.close(descriptor)
                raise OSError(errno.EINVAL, "not a regular file", self._full(path))
            return descriptor

    def lstat(self, path: str) -> os.stat_result | None:
        """Return the status of a file, folder or link; None if it does not exist."""
        try:
            with self._parent(split(path)) as (parent, name):
                return os.stat(name, dir_fd=parent, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def readlink(self, path: str) -> str | None:
        """Return the target of a link; None if there is no link."""
        try:
            with self._parent(split(path)) as (parent, name):
                return os.readlink(name, dir_fd=parent)
        except OSError:
            return None

    def make_link(self, path: str, target: str) -> None:
        """Make a symbolic link; raise FileExistsError if the path exists."""
        with self._parent(split(path)) as (parent, name):
            os.symlink(target, name, dir_fd=parent)

    def move(self, path: str, target: Beneath, target_path: str) -> None:
        """Move a file or link to `target_path` beneath `target`; replace whatever exists there, even a full folder."""
        with target._parent(split(target_path)) as (new, name), self._parent(split(path)) as (old, source_name):
            if _kind(name, new) == stat.S_IFDIR:
                shutil.rmtree(name, dir_fd=new)
            os.rename(source_name, name, src_dir_fd=old, dst_dir_fd=new)

    def remove(self, path: str) -> None:
        """Remove a file, a link or an empty folder; ignore folders with content and missing paths."""
        with suppress(FileNotFoundError, NotADirectoryError), self._parent(split(path)) as (parent, name):
            if _kind(name, parent) != stat.S_IFDIR:
                os.unlink(name, dir_fd=parent)
                return
            try:
                os.rmdir(name, dir_fd=parent)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise

    def remove_tree(self, path: str) -> None:
        """Remove a folder with its content, a file or a link; ignore a path that does not exist."""
        with suppress(FileNotFoundError, NotADirectoryError), self._parent(split(path)) as (parent, name):
            if _kind(name, parent) == stat.S_IFDIR:
                shutil.rmtree(name, dir_fd=parent)
            else:
                os.unlink(name, dir_fd=parent)

    def walk(self, path: str = "") -> Iterator[tuple[str, os.stat_result]]:
        """Yield path and status of all content of the folder, or of one beneath it; folders before their content."""
        todo = [path]
        while todo:
            at = todo.pop()
            for name in self._names(at):
                inner = f"{at}/{name}" if at else name
                found = self.lstat(inner)
                if found is None:
                    continue  # removed meanwhile
                yield inner, found
                if stat.S_ISDIR(found.st_mode):
                    todo.append(inner)

    def _names(self, path: str) -> list[str]:
        try:
            with self._opened(split(path) if path else []) as folder:
                return sorted(os.listdir(folder))
        except (FileNotFoundError, NotADirectoryError):
            return []

    @contextmanager
    def _parent(self, names: list[str]) -> Iterator[tuple[int, str]]:
        """Open the folder that contains the last name; errors within the block are raised with the whole path."""
        try:
            with self._opened(names[:-1]) as folder:
                yield folder, names[-1]
        except OSError as error:
            if error.errno == errno.ELOOP:
                error = OSError(errno.ENOTDIR, "a symbolic link is in the way")
            error.filename, error.filename2 = self._full("/".join(names)), None
            raise error from None

    @contextmanager
    def _opened(self, names: list[str]) -> Iterator[int]:
        folder = os.dup(self._root)
        try:
            for name in names:
                inner = os.open(name, _FOLDER, dir_fd=folder)
                os.close(folder)
                folder = inner
            yield folder
        finally:
            os.close(folder)

    def _full(self, path: str) -> str:
        return os.path.join(self._folder, path)


def _kind(name: str, parent: int) -> int | None:
    try:
        return stat.S_IFMT(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return None
