"""From a plan to a run that somebody looks after."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from functools import partial

from drumline.engine.protocol import Engine, Site
from drumline.engine.registry import open_engine
from drumline.errors import DrumlineError, EngineError, InputError
from drumline.plan.bind import bind
from drumline.plan.renumber import renumbered
from drumline.plan.types import Plan, Secret
from drumline.store.again import Asked, find_again
from drumline.store.folder import RunFolder, create_folder
from drumline.store.home import home_of
from drumline.store.launch import write_launch
from drumline.supervise.detach import Spare, hold_interrupts, take_up
from drumline.supervise.site import site_of


def check_launchable(engine: Engine, plan: Plan) -> str:
    """Refuse what cannot be placed or started here before there is a run; return what is short all the same."""
    _require_secrets(plan)
    launches = bind(plan, engine.place(plan))
    engine.close()
    shortages = "; ".join(engine.shortages(plan))  # each has commas of its own
    if shortages and not plan.oversubscribe:
        raise InputError(shortages, hint="ask for less, or insist with `--oversubscribe`")
    for objection in engine.objections(launches):
        raise EngineError(objection)
    return shortages


def launch(
    plan_as: Callable[[str], Plan],
    site: Site,
    *,
    spec: bytes,
    spare: Spare | None,
    asked_for: Callable[[Plan], Asked | None] = lambda _: None,
) -> tuple[RunFolder, Plan]:
    """Make a run of a plan and give it a supervisor. Interrupts are to be held: there is a run now, to be named.

    If nothing but what was asked for and the spec has a part in the plan, whoever asks again gets it again.
    """
    folder = create_folder(site.home)
    plan = plan_as(folder.id)
    write_launch(folder, plan, spec=spec, directory=site.directory, at=time.time(), asked=asked_for(plan))
    take_up(folder, spare=spare)
    return folder, plan


def launch_again(arguments: Sequence[str], spare: Spare) -> bool:
    """If these arguments repeat the launch before, give the spare such a run, and hold interrupts from then on.

    Whatever there is to say or to refuse is left to whoever goes the long way.
    """
    again = find_again(home_of(os.environ), arguments)
    if again is None:
        return False
    site = site_of(again.directory)
    try:
        engine = open_engine(again.plan.engine, site)
        if check_launchable(engine, again.plan) or engine.remarks():
            return False
    except DrumlineError:
        return False
    hold_interrupts()
    launch(
        partial(renumbered, again.plan),
        site,
        spec=again.spec,
        spare=spare,
        asked_for=lambda _: again.asked,
    )
    return True


def _require_secrets(plan: Plan) -> None:
    """Refuse a run that could not be started for want of a secret."""
    helpers = [(each.id, each.env) for each in plan.preparations]
    for who, env in (*helpers, *((each.id, each.env) for each in plan.replicas)):
        for name, value in env.items():
            if isinstance(value, Secret) and not os.environ.get(value.variable):
                raise InputError(
                    f"{who} needs the secret {name} from the variable {value.variable}, which is not set",
                    hint=f"set it where you launch: `export {value.variable}=…`",
                )
