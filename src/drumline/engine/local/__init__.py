"""The engine `local`: every replica is a process of this machine with its own port."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from drumline.engine.argument_limits import too_long_arguments
from drumline.engine.interpreter import require_interpreter
from drumline.engine.local.interpreters import Interpreters
from drumline.engine.local.place import place
from drumline.engine.local.planned import local_plan
from drumline.engine.local.resource_claim import ResourceClaim
from drumline.engine.protocol import Capabilities, Problem, Site
from drumline.plan.types import Launch, Placement, Plan

if TYPE_CHECKING:
    from drumline.engine.abilities import FaultInjector
    from drumline.engine.doctor_checks import DoctorCheck, DoctorTarget
    from drumline.engine.local.session import LocalSession
    from drumline.engine.output import Output, RunOutput
    from drumline.engine.warm import WarmPool


class LocalEngine:
    """Runs replicas as processes of this machine."""

    capabilities = Capabilities(forms=("shell", "json", "yaml"))

    def __init__(self, site: Site, environ: Mapping[str, str], lease: tuple[str, float] | None = None) -> None:
        self._site = site
        self._environ = environ
        self._lease = lease  # a file, and how many seconds replicas run after it was last touched
        self._resources = ResourceClaim(site, environ, boot=_boot)
        self._pythons = Interpreters(site, environ, copies=False)

    async def place(self, plan: Plan) -> Placement:
        """Return the port of every replica, that of the spec or one that is free now, and its GPUs; claim nothing."""
        python = self._pythons.of(plan)
        if python is None and self._site.python:
            require_interpreter(self._site.python, (each.argv for each in plan.replicas))
        placement, _ = place(plan, self._site, hold=False)
        with_python = self._pythons.applied(plan)
        placement = {name: with_python(where) for name, where in placement.items()}
        assignment = self._resources.preview_gpus(plan)
        return assignment.apply(placement) if assignment else placement

    def capacity_problems(self, plan: Plan) -> Iterator[str]:
        """Yield a message for each resource that the plan requests beyond the capacity of this machine."""
        return self._resources.excess(plan)

    def render(self, plan: Plan, launches: Sequence[Launch], form: str) -> str:
        """Return a script that starts any one replica by hand, or the same as data."""
        from drumline.engine.local.render import render  # noqa: PLC0415 - YAML, which no supervisor needs

        python = self._pythons.of(plan)
        if python:
            python.copy_runtime()
        elif runtime := self._pythons.copied_runtime():
            from drumline.engine.local.python import copy_runtime  # noqa: PLC0415 - only where it is needed

            copy_runtime(runtime)
        return render(plan, launches, form, build=python.wanted.argv if python else ())

    def problems(self, plan: Plan, launches: Sequence[Launch]) -> Iterator[Problem]:
        """Yield problems of too long variables and of a private network, and warnings about shared GPUs."""
        yield from map(Problem, too_long_arguments(launches))
        if local_plan(plan).private_network:
            from drumline.engine.local.network import find_network_problem  # noqa: PLC0415

            if refused := find_network_problem():
                yield Problem(refused)
        if assignment := self._resources.preview_gpus(plan):
            for warning in assignment.warnings:
                yield Problem(warning, is_warning=True)

    @asynccontextmanager
    async def open(self, run_dir: Path) -> AsyncIterator[LocalSession]:
        """Open the session of a run; replicas run on when it is closed."""
        from drumline.engine.local.session import LocalSession  # noqa: PLC0415 - not needed by `place`

        yield LocalSession(run_dir, self._site, self._environ, self._lease)

    def fault_injector(self) -> FaultInjector:
        """Return the object that injects faults into replicas, for drills."""
        from drumline.engine.local.fault_injector import LocalFaultInjector  # noqa: PLC0415 - only in a drill

        return LocalFaultInjector()

    def diagnose(self, target: DoctorTarget) -> Iterable[DoctorCheck]:
        """Yield the checks of this machine."""
        from drumline.engine.local.doctor import diagnose  # noqa: PLC0415 - few commands need it

        return diagnose(target, self)

    def open_output(self, run_output: RunOutput) -> Output:
        """Return access to the run's output folder."""
        from drumline.engine.local.output import open_output  # noqa: PLC0415 - few commands need it

        return open_output(run_output)

    def warm_pool(self) -> WarmPool:
        """Return access to the warm processes of this home."""
        from drumline.engine.local.warm.pool import LocalWarmPool  # noqa: PLC0415 - one command needs it

        return LocalWarmPool(self._site.home)


def import_session() -> None:
    """Import the module of the session, which a supervisor needs; commands that only call `place` do not."""
    import_module("drumline.engine.local.session")


def make_engine(site: Site) -> LocalEngine:
    """Return the engine for this machine."""
    return LocalEngine(site, dict(os.environ))  # a plain dict is faster to copy for every replica


def _boot() -> str:
    from drumline.runtime.keeper import boot_id  # noqa: PLC0415 - see `import_session`

    return boot_id()
