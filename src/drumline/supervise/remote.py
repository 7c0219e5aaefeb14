"""The counterpart of a follower, on the machine of a remote supervisor: starts it, and answers requests for its run.

An engine runs `python -m drumline.supervise.remote start|answer FOLDER` on that machine, with one message on stdin; the
answer is on stdout.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from drumline.errors import DrumlineError
from drumline.run.event import ResumeRequested, StopRequested
from drumline.runtime.keeper import now
from drumline.runtime.lock import is_locked
from drumline.runtime.private import make_folder, open_regular, write_file
from drumline.runtime.unix import connect
from drumline.store.folder import RunFolder
from drumline.store.home import LAUNCH, PLAN, read_version, write_version
from drumline.store.launch import SENT_BY, read_facts
from drumline.supervise.control import DONE, SAMPLED
from drumline.supervise.detach import start_supervisor
from drumline.supervise.message import MOST_BYTES, MOST_PIECES, OWN, Versions, read_head, version_problem, write_head
from drumline.supervise.requests import may_return_itself

_SPEC = "drumline.yml"
_FILES = (_SPEC, LAUNCH, PLAN)  # the plan is written last: a folder without a plan is not a run
_ASKED = {"stop": False, "force": True}
# The requests with a second answer: its text, and the seconds to wait for it. Other requests have one answer.
_LAST = {"watch": (SAMPLED, 2.0), "stacks": (DONE, 25.0)}
_ANSWER_SECONDS = 10.0


def answer(folder: RunFolder, message: bytes) -> bytes:
    """Return the answer to a message that requests pieces of files, or that has a request for the supervisor."""
    try:
        _, fields = _read(message)
        locked = is_locked(folder.lock_file)  # before the files are read: a supervisor writes them before it exits
        state_fields = {"locked": locked, "returning": not locked and may_return_itself(folder)}
        match fields.get("do"):
            case "read":
                sizes, data = _read_pieces(folder, fields.get("pieces"))
                return write_head(**state_fields, found=sizes) + data
            case "request":
                return write_head(**state_fields, reply=_pass_on(folder, fields.get("request")))
            case other:
                return write_head(error=f"drumline {OWN.drumline} does not know the message {str(other)[:80]!r}")
    except (DrumlineError, ValueError, OSError) as error:
        return write_head(error=str(error))


def start(folder: RunFolder, message: bytes) -> bytes:
    """Write the files of a run unless they exist, start a supervisor unless there is one, and return the answer."""
    try:
        sender, fields = _read(message)
        launch = json.loads(message.partition(b"\n")[2])
        _write_files(folder, launch["files"], sender)
        os.environ.update(launch["secrets"])
        asked = fields.get("asked")
        event = StopRequested(_ASKED[asked], now()) if asked in _ASKED else None
        started = start_supervisor(folder, asked=ResumeRequested() if asked == "resume" else event)
        return write_head(locked=True, reply={"ok": started})
    except (DrumlineError, ValueError, TypeError, KeyError, OSError) as error:
        return write_head(error=str(error) if isinstance(error, DrumlineError | ValueError) else repr(error))


def _read(message: bytes) -> tuple[Versions, Mapping[str, Any]]:
    """Return the versions and fields of a message; raise ValueError if its version is not compatible."""
    versions, fields = read_head(message.partition(b"\n")[0])
    if problem := version_problem(versions):
        raise ValueError(f"the command line has an incompatible version: {problem[0]}; {problem[1]}")
    return versions, fields


def _write_files(folder: RunFolder, files: Mapping[str, str], sender: Versions) -> None:
    """Write the files of a run; raise ValueError if another run has this folder."""
    facts = {**json.loads(files[LAUNCH]), SENT_BY: sender.drumline}
    if folder.plan_file.exists():
        if read_facts(folder).get("at") != facts["at"]:
            raise ValueError(f"{folder.path} is the folder of another run")
        return
    home = folder.path.parent.parent
    is_new = not folder.path.parent.exists()
    make_folder(folder.path)
    if is_new and read_version(home)[1] == "":
        write_version(home)
    for name in _FILES:
        text = json.dumps(facts) if name == LAUNCH else files[name]
        write_file(folder.path / name, text.encode("utf-8", "surrogateescape"))


def _read_pieces(folder: RunFolder, pieces: Any) -> tuple[list[tuple[int, int]], bytes]:
    """Return the pair (file size, piece size) of each piece of a file, and the data of all pieces.

    Both sizes are 0 if the file cannot be read. Raise ValueError for an invalid request.
    """
    if not isinstance(pieces, list) or len(pieces) > MOST_PIECES:
        raise ValueError("too many files at once")
    sizes, found, left = [], bytearray(), MOST_BYTES
    for piece in pieces:
        match piece:
            case [str() as name, int() as offset, int() as limit] if _is_inside(name) and min(offset, limit) >= 0:
                size, data = _read_piece(folder.path / name, offset, min(limit, left))
            case _:
                raise ValueError(f"not a part of a file: {str(piece)[:80]}")
        sizes.append((size, len(data)))
        found += data
        left -= len(data)
    return sizes, bytes(found)


def _read_piece(path: Path, offset: int, limit: int) -> tuple[int, bytes]:
    try:
        with open(path, "rb", opener=open_regular) as stream:
            size = os.fstat(stream.fileno()).st_size
            stream.seek(offset)
            return size, stream.read(limit)
    except OSError:
        return 0, b""


def _is_inside(name: str) -> bool:
    return bool(name) and not set(name.split("/")) & {"", ".", ".."} and "\0" not in name


def _pass_on(folder: RunFolder, request: Any) -> Mapping[str, Any]:
    """Forward a request to the run's supervisor; return its answer when the request is done, or after a timeout."""
    if not isinstance(request, dict):
        raise ValueError("a request that is no mapping")
    connection = connect(folder.socket_file)
    if connection is None:
        return {"ok": False, "message": f"run {folder.id} has no supervisor"}
    last, seconds = _LAST.get(str(request.get("do")), (b"", _ANSWER_SECONDS))
    with connection:
        connection.settimeout(seconds)
        connection.sendall(json.dumps(request).encode() + b"\n")
        return _read_reply(connection, last)


def _read_reply(connection: socket.socket, last: bytes) -> Mapping[str, Any]:
    received = b""
    try:
        while not _is_whole(received, last) and (data := connection.recv(4096)):
            received += data
    except TimeoutError:
        pass  # the answer that was received before the timeout is returned
    except OSError:
        received = b""
    return _first(received) or {"ok": False, "message": "the supervisor has exited"}


def _is_whole(received: bytes, last: bytes) -> bool:
    return last in received if (first := _first(received)) and first.get("ok") else bool(first)


def _first(received: bytes) -> Mapping[str, Any] | None:
    line, newline, _ = received.partition(b"\n")
    return dict(json.loads(line)) if newline else None


def main(argv: Sequence[str]) -> None:
    """Answer one message."""
    what, folder = argv
    message = sys.stdin.buffer.read()
    run = RunFolder(Path(folder))
    sys.stdout.buffer.write(start(run, message) if what == "start" else answer(run, message))


if __name__ == "__main__":
    main(sys.argv[1:])
