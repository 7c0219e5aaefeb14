"""Check what this machine offers to a run, and which features of drumline work here."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from drumline import __version__
from drumline.engine.abilities import Limited
from drumline.engine.doctor_checks import (
    MISSING,
    NOTE,
    OK,
    PACKAGES,
    DoctorCheck,
    DoctorTarget,
    free_bytes,
    missing_framework,
)
from drumline.engine.local.capacity import find_capacity
from drumline.engine.local.network import find_network_problem
from drumline.engine.local.planned import local_plan
from drumline.engine.local.stacks import find_spy
from drumline.engine.protocol import Engine, Site
from drumline.errors import DrumlineError
from drumline.plan.types import Plan
from drumline.words import count, size

_LITTLE_BYTES = 1 << 30
_ANSWER_SECONDS = 30
# Looked up by the name that pip uses: a wheel may spell it differently, as tensorflow_cpu does.
_ASK = """\
import json, sys
from importlib import metadata
found = []
for name in sys.argv[1:]:
    try:
        found.append(f"{name} {metadata.version(name)}")
    except metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""


class LimitedEngine(Engine, Limited, Protocol):
    """An engine that knows the capacity of its machines."""


def diagnose(target: DoctorTarget, engine: LimitedEngine) -> Iterator[DoctorCheck]:
    """Yield the checks of this machine; with a plan, also check that it fits and that its framework is installed."""
    site = target.site
    yield DoctorCheck("drumline", OK, f"{__version__}, with Python {sys.version.split()[0]}, {sys.executable}")
    yield _python(site, target.plan)
    capacity = find_capacity(site.cores, os.environ)
    gpus = count(len(capacity.gpus), "GPU") if capacity.gpus else "no GPU"
    yield DoctorCheck("machine", OK, f"{capacity.cpus:g} cores, {size(capacity.memory_bytes)} of memory, {gpus}")
    yield _home(site.home)
    if target.plan:
        yield _resources(target.plan, engine)
        yield from _framework(target.plan, site)
    refused = find_network_problem()
    needed = bool(target.plan and local_plan(target.plan).private_network)
    if refused:
        yield DoctorCheck("private network", MISSING if needed else NOTE, refused, "`network: shared` works without it")
    else:
        yield DoctorCheck("private network", OK, "replicas can have a private network")
    if spy := find_spy():
        yield DoctorCheck("stacks", OK, f"py-spy, {spy}")
    else:
        words = "py-spy is not installed: Python itself prints the stacks of a hung run, and only when the run is ended"
        yield DoctorCheck("stacks", NOTE, words, "`pip install 'drumline[stacks]'`")


def _python(site: Site, plan: Plan | None) -> DoctorCheck:
    """Check that the Python of commands that begin with `python` can be started."""
    found = site.python
    if plan and plan.environment:
        return DoctorCheck("python", OK, str(plan.environment))
    if found is None:
        return DoctorCheck("python", OK, sys.executable)
    if not os.access(found.path, os.X_OK):
        return DoctorCheck("python", MISSING, f"{found} cannot be started", "activate an environment that exists")
    return DoctorCheck("python", OK, str(found))


def _home(home: Path) -> DoctorCheck:
    left = free_bytes(home)
    at = next((each for each in (home, *home.parents) if each.exists()), home)
    if not os.access(at, os.W_OK):
        return DoctorCheck("home", MISSING, f"{home} cannot be written", "set DRUMLINE_HOME to a folder of yours")
    if left is not None and left < _LITTLE_BYTES:
        return DoctorCheck("home", NOTE, f"{home}, {size(left)} free", "`drumline rm` removes runs that are over")
    return DoctorCheck("home", OK, f"{home}" + ("" if left is None else f", {size(left)} free"))


def _resources(plan: Plan, engine: LimitedEngine) -> DoctorCheck:
    try:
        short = "; ".join(engine.capacity_problems(plan))
        asyncio.run(engine.place(plan))
    except DrumlineError as error:
        return DoctorCheck("room", MISSING, error.message, error.hint)
    if short:
        return DoctorCheck("room", MISSING, short, "ask for less, or start the run anyway with `--oversubscribe`")
    return DoctorCheck("room", OK, f"enough for {count(len(plan.replicas), 'replica')}")


def _framework(plan: Plan, site: Site) -> Iterator[DoctorCheck]:
    """Check that the Python with which replicas would run has their framework.

    A Python that the spec names by its path is not checked: only a run executes what a spec names.
    """
    packages = PACKAGES[plan.framework]
    if packages and plan.environment:
        yield DoctorCheck(plan.framework, OK, f"in an environment of the run: {plan.environment}")
    elif packages:
        folders = [*([site.python_dir] if site.python_dir else []), *os.get_exec_path()]
        names = {each.argv[0] for each in plan.replicas if re.fullmatch(r"python[\d.]*", each.argv[0])}
        found = {shutil.which(name, path=os.pathsep.join(map(os.path.abspath, folders))) for name in names}
        for python in sorted(filter(None, found)):
            installed = _installed(python, packages)
            if installed is None:
                yield DoctorCheck(plan.framework, NOTE, f"cannot find out whether it is installed for {python}")
            elif installed:
                yield DoctorCheck(plan.framework, OK, f"{', '.join(installed)}, for {python}")
            else:
                yield missing_framework(plan.framework, f"it is not installed for {python}", "install it there")


def _installed(python: str, packages: Sequence[str]) -> list[str] | None:
    """Return those of the packages that this Python has, with their versions; None if it cannot be run."""
    try:
        answer = subprocess.run(
            [python, "-c", _ASK, *packages],
            cwd="/",  # so that no `json.py` of the project is imported
            capture_output=True,
            text=True,
            check=True,
            timeout=_ANSWER_SECONDS,
        )
        found: list[str] = json.loads(answer.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None
    return found
