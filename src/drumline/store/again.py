"""A launch that is asked for again, and the plan that is known for it.

Whoever works on a script launches one spec all day, and waits each time until it is read, checked and planned. A plan
follows from the bytes of its spec, from what was typed and where, and from drumline itself: where all of these are as
they were for the newest run, so is the plan. Whoever keeps an `Asked` with a run says that nothing else had a part.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from drumline import __version__
from drumline.errors import DrumlineError
from drumline.plan.types import Plan
from drumline.store.folder import newest_folder
from drumline.store.launch import ASKED, read_facts

_PACKAGE = os.path.dirname(os.path.dirname(__file__))  # noqa: PTH120 - nobody needs more of it
_MAKERS = ("cli", "plan", "spec", "spec/dialect")  # whoever has a part in a plan


class Asked(NamedTuple):
    """What a plan follows from, but for the bytes of its spec; `maker` is this very drumline."""

    arguments: list[str]
    folder: str
    spec: str
    maker: str


class Again(NamedTuple):
    """A launch that repeats the one before."""

    plan: Plan
    spec: bytes
    directory: Path
    asked: Asked


def asked(arguments: Sequence[str], spec: str) -> Asked | None:
    """What is asked now; None if the spec is no file that can be read twice."""
    try:
        folder = os.getcwd()  # noqa: PTH109
        path = os.path.join(folder, spec)  # noqa: PTH118
        if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116
            return None
        return Asked(list(arguments), folder, path, _maker())
    except (OSError, ValueError):
        return None


def find_again(home: Path, arguments: Sequence[str]) -> Again | None:
    """The launch that these arguments repeat here and now, if they do."""
    try:
        before = newest_folder(home)
        facts = read_facts(before) if before else {}
        then = Asked(*facts[ASKED])
        if asked(arguments, then.spec) != then:
            return None
        spec = _read(then.spec)
        if before is None or spec != _read(before.spec_file):
            return None
        return Again(before.plan(), spec, Path(facts["directory"]), then)
    except (OSError, KeyError, TypeError, DrumlineError):  # of a run that is being removed, or was damaged
        return None


def _read(path: str | Path) -> bytes:
    with open(path, "rb") as stream:  # noqa: PTH123
        return stream.read()


def _maker() -> str:
    """This drumline: its version, where it is, and, for those who work on it, when it was last changed."""
    latest = 0
    for part in _MAKERS:
        with os.scandir(f"{_PACKAGE}/{part}") as entries:
            latest = max(latest, *(entry.stat().st_mtime_ns for entry in entries if entry.name.endswith(".py")))
    return f"{__version__} {_PACKAGE} {latest}"
