"""Records on this machine about an incarnation in a pod or on a host: its start and its end.

An end is recorded before it is reported, so that the next supervisor reports the same end, even if the pod or the host
is gone.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from drumline.plan.codec import from_data, to_data
from drumline.record import Record
from drumline.run.event import Exit
from drumline.run.traces import TRACE
from drumline.runtime.keeper import boot_id, now


class End(Record):
    """How an incarnation ended, and when."""

    exit: Exit
    at_seconds: float  # since the boot of this machine
    has_started: bool


def note(folder: Path, data: Mapping[str, object]) -> None:
    """Append a record to the trace of an incarnation."""
    for each in (folder.parent.parent, folder.parent, folder):
        each.mkdir(exist_ok=True, mode=0o700)
    file = os.open(folder / TRACE, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.write(file, json.dumps(data).encode() + b"\n")
    finally:
        os.close(file)


def note_end(folder: Path, end: End) -> None:
    """Record the end of an incarnation."""
    when = {"at": end.at_seconds, "boot": boot_id(), "utc": time.time() - (now() - end.at_seconds)}
    note(folder, {**when, "over": True, "exit": to_data(end.exit), "started": end.has_started})


def read_notes(folder: Path) -> dict[str, Any]:
    """Return all records of a trace, merged into one; incomplete lines are ignored."""
    known: dict[str, Any] = {}
    with suppress(FileNotFoundError):
        for line in (folder / TRACE).read_bytes().split(b"\n")[:-1]:
            with suppress(ValueError, TypeError, RecursionError):
                known.update(json.loads(line))
    return known


def read_end(folder: Path) -> End | None:
    """Return the recorded end of an incarnation; None if there is none or it cannot be read."""
    known = read_notes(folder)
    if "over" not in known:
        return None
    try:
        at = float(known["at"])
        if known["boot"] != boot_id():  # the clock started again at 0
            at = now() - (time.time() - float(known["utc"]))
        return End(from_data(Exit, known["exit"]), at, bool(known["started"]))
    except (KeyError, ValueError, TypeError, OverflowError, RecursionError):
        return None
