"""The facts of a launch: where, when and from which code a run was launched."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from drumline.errors import EngineError
from drumline.plan.codec import plan_to_json
from drumline.plan.types import Plan
from drumline.runtime.private import read_regular, write_file
from drumline.store.folder import RunFolder

SENT_BY = "sent_by"  # in the facts of a run that another machine sent to this one: the version of drumline there
_MOST_BYTES = 1 << 20  # bytes of the facts
_LATEST = 1e11  # a time beyond this is damage


def write_launch(
    folder: RunFolder, plan: Plan, *, spec: bytes, directory: Path, at: float, python: tuple[str, str] | None = None
) -> None:
    """Write the plan, a copy of the spec, and the facts of the launch.

    If one of them cannot be written, remove the run and raise EngineError. `python` is the path of the interpreter that
    the command `python` means in the run, and the reason.
    """
    facts = {"v": 1, "directory": str(directory), "at": at, **({"python": python} if python else {})}
    try:
        write_file(folder.spec_file, spec)
        write_file(folder.facts_file, json.dumps(facts).encode())
        write_file(folder.plan_file, plan_to_json(plan).encode())
    except OSError as error:
        _remove(folder.path)
        raise EngineError(f"cannot keep run {folder.id} in {folder.path}: {error.strerror}") from None


def add_facts(folder: RunFolder, **facts: object) -> None:
    """Add facts to the recorded facts of the launch; without effect if they are missing or cannot be written."""
    if known := read_facts(folder):
        with suppress(OSError):
            write_file(folder.facts_file, json.dumps({**known, **facts}).encode())


def read_facts(folder: RunFolder) -> dict[str, Any]:
    """Return the facts of the launch; empty if they are missing or damaged."""
    try:
        facts = json.loads(read_regular(folder.facts_file, _MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(facts, dict):
        return {}
    if not _is_path(facts.get("directory")):
        facts.pop("directory", None)
    if not isinstance(facts.get("at"), int | float) or not 0 <= facts["at"] < _LATEST:
        facts.pop("at", None)
    return facts


def read_python(facts: dict[str, Any]) -> tuple[str, str] | None:
    """Return the interpreter that `python` meant at the launch, and the reason; None if it is not recorded."""
    match facts.get("python"):
        case [str() as path, str() as reason] if _is_path(path) and Path(path).is_absolute():
            return path, reason
    return None


def _is_path(value: object) -> bool:
    """Return whether a value is a valid path."""
    try:
        return isinstance(value, str) and b"\0" not in os.fsencode(value)
    except UnicodeEncodeError:
        return False


def _remove(folder: Path) -> None:
    import shutil  # noqa: PLC0415 - every command imports this module, and hardly any needs that one

    shutil.rmtree(folder, ignore_errors=True)
