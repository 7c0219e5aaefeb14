"""Check a plan, and make a run of it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator, Sequence

from drumline.engine.abilities import Limited
from drumline.engine.protocol import Engine, Site
from drumline.errors import EngineError, InputError
from drumline.plan.bind import bind
from drumline.plan.types import Plan, Secret
from drumline.store.folder import RunFolder, create_folder
from drumline.store.launch import write_launch


def check_launchable(engine: Engine, plan: Plan) -> tuple[str, Sequence[str]]:
    """Return the capacity problems of a plan, and all warnings.

    Raise InputError or EngineError if the plan cannot be started. Capacity problems are only returned with
    `--oversubscribe`.
    """
    _require_secrets(plan)
    launches = bind(plan, asyncio.run(engine.place(plan)))
    capacity_problems = "; ".join(find_capacity_problems(engine, plan))  # a problem may contain commas
    if capacity_problems and not plan.oversubscribe:
        raise InputError(capacity_problems, hint="ask for less, or use `--oversubscribe`")
    problems = [*engine.problems(plan, launches)]
    for problem in problems:
        if not problem.is_warning:
            raise EngineError(problem.message)
    return capacity_problems, [problem.message for problem in problems]


def find_capacity_problems(engine: Engine, plan: Plan) -> Iterator[str]:
    """Yield the claims of the plan that exceed the capacity; nothing if the engine does not know it before the run."""
    return engine.capacity_problems(plan) if isinstance(engine, Limited) else iter(())


def make_run(plan_as: Callable[[str], Plan], site: Site, *, spec: bytes) -> tuple[RunFolder, Plan]:
    """Create the folder of a new run with its plan; the caller blocks SIGINT, since the run has no supervisor yet."""
    folder = create_folder(site.home)
    plan = plan_as(folder.id)
    python = (site.python.path, site.python.reason) if site.python else None
    write_launch(folder, plan, spec=spec, directory=site.directory, at=time.time(), python=python)
    return folder, plan


def _require_secrets(plan: Plan) -> None:
    """Raise InputError if the environment variable of a secret of the plan is not set."""
    helpers = [(each.id, each.env) for each in plan.preparations]
    for name_of, env in (*helpers, *((each.id, each.env) for each in plan.replicas)):
        for name, value in env.items():
            if isinstance(value, Secret) and not os.environ.get(value.variable):
                raise InputError(
                    f"{name_of} needs the secret {name} from the variable {value.variable}, which is not set",
                    hint=f"set it where you launch: `export {value.variable}=…`",
                )
