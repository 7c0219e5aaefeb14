"""What this machine has for a line, and what of drumline works here."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from drumline.engine.health import FINE, MISSING, UNSURE, Health, Patient, free_bytes
from drumline.engine.local import make_engine
from drumline.engine.local.capacity import find_capacity
from drumline.engine.local.network import objection
from drumline.engine.local.stacks import find_spy
from drumline.errors import DrumlineError
from drumline.words import count, size

_LITTLE_BYTES = 1 << 30


def examine(patient: Patient) -> Iterator[Health]:
    """Look at this machine, and at whether the plan fits on it."""
    site = patient.site
    yield Health("python", FINE, f"{sys.version.split()[0]}, {sys.executable}")
    capacity = find_capacity(site.cores, os.environ)
    gpus = count(len(capacity.gpus), "GPU") if capacity.gpus else "no GPU"
    yield Health("machine", FINE, f"{capacity.cpus:g} cores, {size(capacity.memory_bytes)} of memory, {gpus}")
    yield _home(site.home)
    if patient.plan:
        yield _room(patient)
    refused = objection()
    needed = bool(patient.plan and patient.plan.private_network)
    if refused:
        yield Health("private network", MISSING if needed else UNSURE, refused, "`network: shared` needs nothing")
    else:
        yield Health("private network", FINE, "replicas can have a network of their own")
    if spy := find_spy():
        yield Health("stacks", FINE, f"py-spy, {spy}")
    else:
        words = "there is no py-spy: of a line that hangs, Python's own stacks are shown, and only as it is ended"
        yield Health("stacks", UNSURE, words, "`pip install 'drumline[stacks]'`")


def _home(home: Path) -> Health:
    left = free_bytes(home)
    at = next((each for each in (home, *home.parents) if each.exists()), home)
    if not os.access(at, os.W_OK):
        return Health("home", MISSING, f"{home} cannot be written", "set DRUMLINE_HOME to a folder of yours")
    if left is not None and left < _LITTLE_BYTES:
        return Health("home", UNSURE, f"{home}, {size(left)} free", "`drumline rm` removes runs that are over")
    return Health("home", FINE, f"{home}" + ("" if left is None else f", {size(left)} free"))


def _room(patient: Patient) -> Health:
    plan = patient.plan
    assert plan
    engine = make_engine(patient.site)
    try:
        short = "; ".join(engine.shortages(plan))
        engine.place(plan)
    except DrumlineError as error:
        return Health("room", MISSING, error.message, error.hint)
    finally:
        engine.close()
    if short:
        return Health("room", MISSING, short, "ask for less, or insist with `--oversubscribe`")
    return Health("room", FINE, f"enough for {count(len(plan.replicas), 'replica')}")
