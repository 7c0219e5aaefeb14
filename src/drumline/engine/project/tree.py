"""The files of a folder that belong to a project, in a fixed order."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from drumline.engine.project.beneath import Beneath
from drumline.engine.project.ignore import Rules, is_ignored, read_rules
from drumline.errors import InputError
from drumline.record import Record

GIT, OWN = ".gitignore", ".drumlineignore"
_NEVER = {".git", ".hg", ".svn", ".jj", ".venv", "__pycache__"}
_TRIES = 3
_MOST_NAMED = 3  # paths in a warning


class Entry(Record):
    """A file, a folder or a link below the root; its path is as `os.fsdecode` returns it."""

    path: str  # relative to the root
    kind: str  # "file", "folder" or "link"
    size_bytes: int = 0
    executable: bool = False
    target: str = ""  # of a link, relative to its folder


class Tree(Record):
    """The files of a project, by name, and warnings about files that were left out though they are not ignored."""

    entries: tuple[Entry, ...]
    warnings: tuple[str, ...]


def walk_project(root: Path, *, without: Collection[Path] = (), rules: bool = True) -> Tree:
    """Return the files of a project: all except ignored ones, version control, environments, and those in `without`.

    Without `rules`, ignore files have no effect. Raise InputError for a folder that cannot be read.
    """
    root = Path(os.path.realpath(root))
    walker = _Walker(root, {os.path.realpath(each) for each in without}, rules=rules)
    entries = tuple(sorted(walker.entries(), key=lambda entry: os.fsencode(entry.path)))
    return Tree(entries, tuple(walker.warnings))


def read_file(root: Path, entry: Entry, fstat: Callable[[int], os.stat_result] = os.fstat) -> tuple[bytes, bool] | None:
    """Return the content of a file, and whether it was unchanged while it was read; None if it no longer exists."""
    data = b""
    for _ in range(_TRIES):
        try:
            with open_beneath(root, entry.path) as file:
                before = fstat(file.fileno())
                data = file.read()
                after = fstat(file.fileno())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno == errno.EINVAL:
                return None  # it is no longer a regular file
            raise _unreadable(entry.path, error) from None
        if (before.st_mtime_ns, before.st_size) == (after.st_mtime_ns, after.st_size) and len(data) == after.st_size:
            return data, True
    return data, False


def open_beneath(root: Path, path: str) -> BinaryIO:
    """Open a regular file of a folder for reading, without following links; raise OSError if that is not possible."""
    with Beneath(root) as folder:
        return os.fdopen(folder.open(path, os.O_RDONLY), "rb")


class _Walker:
    """One walk; collects warnings."""

    def __init__(self, root: Path, without: Collection[str], *, rules: bool) -> None:
        self._root = root
        self._without = without
        self._rules = rules
        self._outer = tuple(_outer_rules(root)) if rules else ()
        self._above = _above(root) if rules else b""
        self.warnings: list[str] = []

    def entries(self) -> Iterator[Entry]:
        yield from self._folder("", self._outer, ())

    def _folder(self, path: str, git: tuple[Rules, ...], own: tuple[Rules, ...]) -> Iterator[Entry]:
        """Yield all entries below a folder.

        `git` are the rules of `.gitignore` files, `own` those of `.drumlineignore` files, each with the nearest first.
        """
        here = self._root / path
        try:
            found = sorted(os.scandir(here), key=lambda each: each.name)
        except OSError as error:
            if path and isinstance(error, FileNotFoundError):
                return  # it was removed meanwhile
            raise _unreadable(path or ".", error) from None
        names = {each.name for each in found}
        if path and "pyvenv.cfg" in names:
            return  # a virtual environment
        base = self._above + (os.fsencode(path) + b"/" if path else b"")
        if self._rules and GIT in names:
            git = (read_rules(_text(here / GIT), base), *git)
        if self._rules and OWN in names:
            own = (read_rules(_text(here / OWN), base), *own)
        if path:
            yield Entry(path, "folder")
        for each in found:
            inner = f"{path}/{each.name}" if path else each.name
            folder = each.is_dir(follow_symlinks=False)
            if each.name in _NEVER or os.path.join(self._root, inner) in self._without:
                continue
            if is_ignored((*own, *git), self._above + os.fsencode(inner), folder=folder):
                continue
            if folder:
                yield from self._folder(inner, git, own)
            elif entry := self._file(each, inner):
                yield entry

    def _file(self, found: os.DirEntry[str], path: str) -> Entry | None:
        try:
            known = found.stat(follow_symlinks=False)
            if stat.S_ISLNK(known.st_mode):
                return self._link(path)
        except FileNotFoundError:
            return None  # it was removed meanwhile
        except OSError as error:
            raise _unreadable(path, error) from None
        if not stat.S_ISREG(known.st_mode):
            self.warnings.append(f"{printable(path)} is left out: it is not a regular file")
            return None
        return Entry(path, "file", known.st_size, bool(known.st_mode & stat.S_IXUSR))

    def _link(self, path: str) -> Entry | None:
        """Return a link within the project as a relative one, which is valid wherever the project is unpacked.

        Return None, with a warning, for a link that leads out of the project.
        """
        target = os.readlink(self._root / path)
        folder = os.path.dirname(self._root / path)
        aim = os.path.normpath(os.path.join(folder, target))
        if os.path.isabs(target):
            aim = os.path.join(os.path.realpath(os.path.dirname(aim)), os.path.basename(aim))
        if aim != str(self._root) and not aim.startswith(f"{self._root}/"):
            self.warnings.append(f"{printable(path)} is left out: it points out of the project, to {printable(target)}")
            return None
        return Entry(path, "link", target=os.path.relpath(aim, folder) if os.path.isabs(target) else target)


def left_out_warning(paths: Sequence[str]) -> str:
    """Return the warning about paths that were not copied."""
    named = ", ".join(printable(each) for each in paths[:_MOST_NAMED]) + (", …" if len(paths) > _MOST_NAMED else "")
    count = f"{len(paths)} of its files are" if len(paths) > 1 else "one of its files is"
    return f"{count} left out, as links that point out of the output, or not regular files: {named}"


def printable(path: str) -> str:
    """Return a path as valid Unicode; bytes that are not UTF-8 are escaped."""
    return os.fsencode(path).decode(errors="backslashreplace")


def _repository(root: Path) -> Path | None:
    return next((each for each in (root, *root.parents) if (each / ".git").exists()), None)


def _above(root: Path) -> bytes:
    """Return the path from the repository to the project, with a `/` at its end; empty without a repository."""
    repository = _repository(root)
    if repository is None or repository == root:
        return b""
    return os.fsencode(root.relative_to(repository)) + b"/"


def _outer_rules(root: Path) -> Iterator[Rules]:
    """Yield the `.gitignore` files above the project within its repository, the nearest first."""
    repository = _repository(root)
    if repository is None or repository == root:
        return
    for folder in root.parents:
        if (folder / GIT).is_file():
            base = os.fsencode(folder.relative_to(repository)) + b"/" if folder != repository else b""
            yield read_rules(_text(folder / GIT), base)
        if folder == repository:
            return


def _text(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except IsADirectoryError:
        return b""
    except OSError as error:
        raise _unreadable(str(path), error) from None


def _unreadable(path: str, error: OSError) -> InputError:
    return InputError(
        f"cannot read {printable(path)}: {error.strerror}",
        hint=f"make it readable, or leave it out with a line in {OWN}",
    )
