"""The origin of a run's output that is copied from hosts to this machine, as recorded in the run's folder."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, cast

from drumline.plan.codec import from_data, to_data
from drumline.record import Record

ORIGIN = "origin.json"


class Origin(Record):
    """The host that writes the output, and the parts of the output that were copied."""

    host: str  # the host of the chief of the last attempt
    output_dir: str  # on that host
    folders: Mapping[str, str] = MappingProxyType({})  # the folder on the host for each folder on this machine
    paths: Mapping[str, tuple[str, ...]] = MappingProxyType({})  # the copied paths for each folder on this machine
    chiefs: tuple[str, ...] = ()  # hosts on which a chief has run, and may have left output
    fetched_at: float | None = None  # time of the last copy, UTC
    is_whole: bool = False  # the chief has ended, and all its output is copied

    @property
    def is_shared(self) -> bool:
        """Return whether the output is on a shared file system, and not copied."""
        return not self.folders

    def to_json(self) -> str:
        """Return the origin as the content of its file."""
        return json.dumps(to_data(self))


def fetched_folder(directory: str, path: str | None) -> str | None:
    """Return the folder of a project into which output of hosts is copied.

    Return None if it is not below the project's folder: the hosts determine the names and contents of the files.
    """
    folder = posixpath.normpath(posixpath.join(directory, path or ""))
    return folder if folder.startswith(f"{posixpath.normpath(directory)}/") else None


def origin_from_json(text: str) -> Origin | None:
    """Return the origin in this text; None if this version cannot read it."""
    try:
        return from_data(Origin, cast("Any", json.loads(text)))
    except (TypeError, ValueError):
        return None
