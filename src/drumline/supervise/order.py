"""What a supervisor is told when there is one, and what it answers; `detach` is the side of whoever tells it."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

from drumline.engine.protocol import Engine
from drumline.engine.registry import open_engine
from drumline.errors import DrumlineError, EngineError
from drumline.plan.codec import plan_from_json
from drumline.plan.renumber import renumbered
from drumline.plan.types import Plan
from drumline.run.codec import event_from_data
from drumline.run.event import ResumeRequested, StopRequested
from drumline.store.folder import RunFolder
from drumline.supervise.launch import check_launchable, make_run
from drumline.supervise.main import supervise
from drumline.supervise.site import site_of
from drumline.words import of_system

Say = Callable[[str], None]


def follow(text: bytes, say: Say, acknowledge: Say) -> None:
    """Look after a run that there is, or make one of a plan first, to its end; `acknowledge` is the last word."""
    order = json.loads(text)
    if "run" in order:
        supervise(Path(order["run"]), acknowledge, asked=_asked(order["asked"]))
        return
    plan, spec = plan_from_json(order["plan"]), order["spec"].encode("latin-1")
    try:
        engine, folder, shortages = _make(plan, spec, Path(order["directory"]))
    except DrumlineError as error:
        say(json.dumps({"refused": [error.exit_code, error.message, error.hint]}) + "\n")
        return
    say(json.dumps({"run": str(folder.path), "shortages": shortages, "notes": engine.remarks()}) + "\n")
    supervise(folder.path, acknowledge, engine=engine)


def _make(plan: Plan, spec: bytes, directory: Path) -> tuple[Engine, RunFolder, str]:
    """Make a run, and the engine that is to run it; with what is short all the same."""
    site = site_of(directory)
    try:
        engine = open_engine(plan.engine, site)
        shortages = check_launchable(engine, plan)
        folder, _ = make_run(partial(renumbered, plan), site, spec=spec)
    except OSError as error:  # of whatever nobody foresaw
        raise EngineError(of_system(error)) from None
    return engine, folder, shortages


def _asked(data: dict[str, Any] | None) -> StopRequested | ResumeRequested | None:
    return None if data is None else cast("StopRequested | ResumeRequested", event_from_data(data))
