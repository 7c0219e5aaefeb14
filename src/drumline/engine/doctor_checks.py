"""What `drumline doctor` reports: one check for each requirement."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from drumline.engine.protocol import Site
from drumline.plan.types import Plan
from drumline.record import Record

OK, NOTE, MISSING = "ok", "note", "missing"
# By framework: the names under which it is installed.
PACKAGES = {
    "tensorflow": ("tensorflow", "tensorflow-cpu", "tf-nightly"),
    "torch": ("torch",),
    "jax": ("jax",),
    "plain": (),
}


class DoctorCheck(Record):
    """The result of one check, and a hint what to do."""

    subject: str
    verdict: str  # OK, NOTE or MISSING
    words: str
    hint: str = ""


class DoctorTarget(Record):
    """What is checked: the engine and its options, and the plan if there is a spec."""

    engine: str
    site: Site
    plan: Plan | None = None
    where: str = "this machine"
    options: Mapping[str, object] = MappingProxyType({})  # the engine's options in the plan, or the default ones


def missing_framework(framework: str, words: str, remedy: str) -> DoctorCheck:
    """Return the check of a framework that is missing or wrong."""
    own = "`tensorflow: {version: …}`" if framework == "tensorflow" else "`environment: [LINES]`"
    hint = f"{remedy}, or let {own} do it for the run; `framework: plain`, if the script needs none"
    return DoctorCheck(framework, MISSING, words, hint)


def free_bytes(folder: Path) -> int | None:
    """Return the free bytes on the disk of a folder that may not exist yet; None if they are not known."""
    import shutil  # noqa: PLC0415 - only doctor needs it

    for each in (folder, *folder.parents):
        if each.is_dir():
            try:
                return shutil.disk_usage(each).free
            except OSError:
                return None
    return None
