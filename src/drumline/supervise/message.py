"""Messages between a follower and a supervisor on another machine, and the check that their versions are compatible.

Each message begins with a line of JSON that has the versions of its sender. After this line, an answer has the
requested bytes. Unknown fields are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from drumline import __version__
from drumline.engine.abilities import MOST_ANSWER_BYTES
from drumline.engine.untrusted import clean_text, load_json
from drumline.errors import EngineError
from drumline.record import Record, to_dict
from drumline.store.journal import VERSION as JOURNAL

PROTOCOL = 1  # of the messages of this file
OLDEST = 1  # the oldest protocol that this version can read
MOST_PIECES = 256  # pieces of files in one request
MOST_BYTES = 1 << 23  # bytes of files in one request
_HEAD_BYTES = 1 << 20
_VERSION_CHARS = 40


class VersionError(EngineError):
    """The other side has a version that is not compatible with this one."""


class Piece(Record):
    """A part of a file in the run's folder."""

    name: str
    offset: int
    limit: int


class Found(Record):
    """The answer to a requested piece; 0 and empty if the file does not exist."""

    size: int  # of the whole file
    data: bytes  # of the piece


class Versions(Record):
    """The versions of the sender of a message."""

    protocol: int
    oldest: int
    journal: int
    drumline: str


OWN = Versions(PROTOCOL, OLDEST, JOURNAL, __version__)


class Answer(Record):
    """The content of an answer."""

    locked: bool  # a supervisor holds the run's lock on the other machine
    returning: bool  # no supervisor holds it, but a keeper may start the next one
    found: tuple[Found, ...] = ()
    reply: Mapping[str, Any] = MappingProxyType({})


def write_head(**fields: object) -> bytes:
    """Return the first line of a message of this version."""
    return json.dumps({**to_dict(OWN), **fields}).encode("utf-8", "backslashreplace") + b"\n"


def read_head(line: bytes) -> tuple[Versions, Mapping[str, Any]]:
    """Return the versions and the fields of a message; raise ValueError if the line is not the head of a message."""
    data = load_json(line)
    if not isinstance(data, dict):
        raise ValueError("a message that is no mapping")
    numbers = [data.get(name) for name in ("protocol", "oldest", "journal")]
    drumline = data.get("drumline")
    if not all(type(each) is int for each in numbers) or not isinstance(drumline, str):
        raise ValueError("a message without versions")
    protocol, oldest, journal = (int(each or 0) for each in numbers)
    return Versions(protocol, oldest, journal, clean_text(drumline, _VERSION_CHARS)), data


def version_problem(theirs: Versions, own: Versions = OWN) -> tuple[str, str] | None:
    """Return why two versions are not compatible and what to install; None if they are compatible.

    The texts are for the user of the side with versions `own`.
    """
    they, this = f"it is of drumline {theirs.drumline}", f"this is drumline {own.drumline}"
    newer = f"install drumline {theirs.drumline} or newer on this side"
    if theirs.oldest > own.protocol:
        needs = f"which needs version {theirs.oldest} of the protocol or newer"
        return f"{they}, {needs}; {this}, which has version {own.protocol}", newer
    if theirs.protocol < own.oldest:
        has = f"which has version {theirs.protocol} of the protocol"
        older = f"install drumline {own.drumline} there, or drumline {theirs.drumline} on this side"
        return f"{they}, {has}; {this}, which needs version {own.oldest} or newer", older
    return None


def journal_problem(theirs: Versions, own: Versions = OWN) -> tuple[str, str] | None:
    """Return why this side cannot read the journal of a supervisor of versions `theirs`, and what to install.

    Return None if it can.
    """
    if theirs.journal <= own.journal:
        return None
    they = f"it is of drumline {theirs.drumline}, with version {theirs.journal} of the journal"
    this = f"this is drumline {own.drumline}, which reads version {own.journal} and older"
    return f"{they}; {this}", f"install drumline {theirs.drumline} or newer on this side"


def read_answer(run: str, data: bytes, pieces: Sequence[Piece] = ()) -> Answer:
    """Read the answer to a request for `pieces`.

    Raise VersionError if its version is not compatible, and EngineError for an error or a damaged answer. The sender is
    not trusted: only numbers, bytes of the requested length, and text for display are used.
    """
    about = f"the supervisor of run {run}"
    line, _, rest = data[:_HEAD_BYTES].partition(b"\n")
    rest = data[len(line) + 1 :]
    try:
        if len(data) > MOST_ANSWER_BYTES or len(line) >= _HEAD_BYTES:
            raise ValueError(f"{len(data)} bytes at once")
        versions, fields = read_head(line)
        if problem := version_problem(versions) or journal_problem(versions):
            raise VersionError(f"{about} has an incompatible version: {problem[0]}", hint=problem[1])
        if error := fields.get("error"):
            raise EngineError(f"{about} refused: {clean_text(str(error))}")
        found = tuple(_found(fields.get("found", []), pieces, rest))
        reply = fields.get("reply", {})
        return Answer(
            fields.get("locked") is True,
            fields.get("returning") is True,
            found,
            reply if isinstance(reply, dict) else {},
        )
    except ValueError as error:
        said = clean_text(str(error), 200)
        raise EngineError(f"{about} has sent something that drumline does not send: {said}") from None


def _found(sizes: Any, pieces: Sequence[Piece], rest: bytes) -> list[Found]:
    """Divide the bytes after the first line into the requested pieces."""
    if not isinstance(sizes, list) or len(sizes) != len(pieces):
        raise ValueError("another number of files than was requested")
    found, start = [], 0
    for each, piece in zip(sizes, pieces, strict=True):
        match each:
            case [int() as size, int() as length] if 0 <= length <= min(piece.limit, len(rest) - start):
                found.append(Found(size, rest[start : start + length]))
                start += length
            case _:
                raise ValueError("a piece of a file with a wrong size, or longer than was requested")
    return found
