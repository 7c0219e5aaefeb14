"""What a doctor finds out about a place where replicas are to run: one line for each thing that matters there."""

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
    """One thing that was looked at: fine, only worth a note, or missing; and what to do about it."""

    subject: str
    verdict: str
    words: str
    hint: str = ""


class DoctorTarget(Record):
    """What is to run there: a plan, if there is a spec; and where to look, as far as somebody said."""

    engine: str
    site: Site
    plan: Plan | None = None
    where: str = "this machine"
    options: Mapping[str, object] = MappingProxyType({})  # of the plan, or those that one would have


def missing_framework(framework: str, words: str, remedy: str) -> DoctorCheck:
    """A framework that is not there as it should be."""
    own = "`tensorflow: {version: …}`" if framework == "tensorflow" else "`environment: [LINES]`"
    hint = f"{remedy}, or let {own} do it for the run; `framework: plain`, if the script needs none"
    return DoctorCheck(framework, MISSING, words, hint)


def free_bytes(folder: Path) -> int | None:
    """What is left on the disk of a folder, or of the one in which it would be made; None if nobody can say."""
    import shutil  # noqa: PLC0415 - nobody else waits for it

    for each in (folder, *folder.parents):
        if each.is_dir():
            try:
                return shutil.disk_usage(each).free
            except OSError:
                return None
    return None
