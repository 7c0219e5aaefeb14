"""Read pip requirements into lines that stay valid in any folder, and when requirements files change later."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from io import BufferedReader
from pathlib import Path

from drumline.runtime.private import open_regular

MAX_BYTES = 1 << 20  # of all files together
_FILE_COST = 1 << 10  # bytes that are counted for each file beside its size: at most a thousand files are read
_DEEPEST = 10  # levels of files that include files
_LARGEST_WHEEL = 1 << 33  # bytes; its digest takes some seconds

# Possessive quantifiers, so that matching takes linear time.
_NAMED = re.compile(
    r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?\s*+(\[[^\]]*+\])?+\s*+(@\s*+\S.*|\(?\s*+([=!~]=|[<>]).*|;.*|)"
)
_URL = re.compile(r"(git|hg|svn|bzr)\+|https?://|file://")
_ARCHIVE = re.compile(r"\.(whl|zip|tar\.(gz|bz2|xz)|tgz)$")
# Options that both pip and uv read from a file.
_OPTION = re.compile(
    r"(-i|--index-url|--extra-index-url|--no-index|--pre|--prefer-binary|--no-binary|--only-binary|--trusted-host"
    r"|--require-hashes)\b"
)


class BadRequirement(ValueError):  # noqa: N818
    """An invalid requirement; `index` is its index in a list, None for a file."""

    def __init__(self, message: str, index: int | None = None) -> None:
        super().__init__(message)
        self.index = index


def read_requirements(written: str | Sequence[str], directory: Path) -> tuple[str, ...]:
    """Read a file or a list of requirements, with the files that they include; paths become absolute.

    A constraint becomes a line `-c REQUIREMENT`. Raise BadRequirement for a missing file or an invalid line.
    """
    reader = _Reader()
    if isinstance(written, str):
        return tuple(reader.read_file(directory / written, _DEEPEST))
    lines: list[str] = []
    for index, text in enumerate(written):
        try:
            if "\n" in text.strip():
                raise BadRequirement("is more than a line: write a list with an item for each")
            lines += reader.read_line(text.strip(), directory, _DEEPEST)
        except BadRequirement as error:
            raise BadRequirement(str(error), index) from None
    return tuple(lines)


class _Reader:
    """Reads files of requirements and those that they include, up to a total size."""

    def __init__(self) -> None:
        self._left = MAX_BYTES

    def read_file(self, path: Path, deepest: int) -> Iterator[str]:
        """Return the requirements of a file."""
        if deepest == 0:
            raise BadRequirement(f"{path} includes itself, or is included more than {_DEEPEST} levels deep")
        text = self._read_text(path)
        number = 1
        for line in re.split(r"(?<!\\)\r?\n", text):
            plain = re.sub(r"(^|\s)#.*$", "", re.sub(r"\\\r?\n\s*", " ", line), flags=re.MULTILINE).strip()
            try:
                if plain:
                    yield from self.read_line(plain, path.parent, deepest)
            except BadRequirement as error:
                message = str(error)
                raise BadRequirement(
                    message if message.startswith("in ") else f"in {path}, line {number}: {error}"
                ) from None
            number += 1 + line.count("\n")

    def _read_text(self, path: Path) -> str:
        try:
            with _open(path) as stream:
                data = stream.read(MAX_BYTES + 1)
                text = data.decode("utf-8-sig")
        except FileNotFoundError:
            raise BadRequirement(f"there is no file {path}") from None
        except (OSError, ValueError) as error:
            raise BadRequirement(f"{path} cannot be read: {getattr(error, 'strerror', None) or 'not UTF-8'}") from None
        if len(data) > MAX_BYTES or "\0" in text:
            raise BadRequirement(f"{path} is no list of requirements")
        self._left -= len(data) + _FILE_COST
        if self._left < 0:
            raise BadRequirement(f"{path} and the files before it are too many, or too long")
        return text

    def read_line(self, text: str, directory: Path, deepest: int) -> Iterator[str]:
        """Return the requirements of a line, which may name a file of them."""
        option, _, value = re.sub(r"^(-[A-Za-z]|--[a-z-]+)[ =]\s*", r"\1 ", text).partition(" ")
        if option in ("-r", "--requirement") and value:
            yield from self.read_file(directory / value, deepest - 1)
        elif option in ("-c", "--constraint") and value:
            for line in self.read_file(directory / value, deepest - 1):
                yield line if line.startswith("-c ") else f"-c {line}"
        elif option in ("-f", "--find-links") and value:
            yield f"--find-links {value if '://' in value else _absolute(directory, value)}"
        elif option in ("-e", "--editable"):
            raise BadRequirement(
                f"`{text}`: an environment is shared and kept, and this may change; give a wheel of it"
            )
        elif text.startswith("-"):
            if not _OPTION.match(text):
                raise BadRequirement(f"`{text}`: this option has no meaning in a list of requirements")
            yield text
        elif _is_path(text, directory):
            yield _local(text, directory)
        elif _URL.match(text) or _NAMED.fullmatch(text):
            yield text
        else:
            raise BadRequirement(f"`{text}` is no requirement: write `name`, `name==1.2`, a URL, or a wheel's path")


def _open(path: Path) -> BufferedReader:
    return open(path, "rb", opener=open_regular)


def _is_path(text: str, directory: Path) -> bool:
    """Return whether a requirement is a path of this machine and not a name or a URL."""
    if "://" in text or " @ " in text:
        return False
    return text.startswith((".", "/")) or bool(_ARCHIVE.search(text)) or ("/" in text and (directory / text).exists())


def _local(text: str, directory: Path) -> str:
    """Return the requirement of a wheel or archive, with the digest of its content."""
    path = Path(_absolute(directory, text))
    if path.is_dir():
        raise BadRequirement(f"`{text}` is a folder, which may change while its name stays: give a wheel of it")
    try:
        if path.stat().st_size > _LARGEST_WHEEL:
            raise BadRequirement(f"{path} is larger than any wheel")
        with _open(path) as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise BadRequirement(f"{path} cannot be read: {error.strerror}") from None
    # With a name, which uv requires: `name-1.0-py3-none-any.whl`, `name-1.0.tar.gz`.
    name = path.name.split("-")[0] if path.suffix == ".whl" else path.name.rpartition("-")[0] or path.stem
    return f"{name} @ {path.as_uri()}#sha256={digest}"


def _absolute(directory: Path, path: str) -> str:
    return str((directory / path).resolve())
