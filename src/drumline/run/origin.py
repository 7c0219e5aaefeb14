"""Where a run's output comes from, if it is not written on this machine: a note in the run's folder."""

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
    """Whose output it is, and how much of it is here."""

    host: str  # of the chief of the last attempt
    output_dir: str  # over there
    folders: Mapping[str, str] = MappingProxyType({})  # what is fetched: folders there, by those here
    paths: Mapping[str, tuple[str, ...]] = MappingProxyType({})  # what has come into each of these
    chiefs: tuple[str, ...] = ()  # hosts on which there has been a chief, so that an output of its own may be left
    fetched_at: float | None = None  # UTC
    is_whole: bool = False  # the chief has ended, and all that it wrote is here

    @property
    def is_shared(self) -> bool:
        """Whether all hosts have it, and nothing of it is fetched."""
        return not self.folders

    def to_json(self) -> str:
        """As it is written down."""
        return json.dumps(to_data(self))


def fetched_folder(directory: str, path: str | None) -> str | None:
    """Return the folder of a project into which hosts' output is fetched, as its spec names it.

    None if it does not lie within the project: hosts write what they like there, so it is neither the project's own
    folder nor one outside of it.
    """
    folder = posixpath.normpath(posixpath.join(directory, path or ""))
    return folder if folder.startswith(f"{posixpath.normpath(directory)}/") else None


def origin_from_json(text: str) -> Origin | None:
    """The note again; None for what this version cannot read."""
    try:
        return from_data(Origin, cast("Any", json.loads(text)))
    except (TypeError, ValueError):
        return None
