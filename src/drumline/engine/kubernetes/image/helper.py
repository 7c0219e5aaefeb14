"""The helper `build` of a run: a process of this machine, with a log and an exit like a replica's."""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from drumline.engine.kubernetes.image.builder import INSTALL, explain_no_builder, find_builder
from drumline.engine.kubernetes.image.recipe import Recipe
from drumline.engine.kubernetes.plan_options import cluster_of, with_cluster
from drumline.engine.local.processes import Processes
from drumline.engine.protocol import ReportEvent, Site
from drumline.errors import EngineError
from drumline.plan.types import BUILD, Launch, Place, Plan, Replica, Resources
from drumline.record import to_dict
from drumline.run.incarnation import Incarnation
from drumline.runtime.keeper import boot_id

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

_MODULE = "drumline.engine.kubernetes.image.build"


def with_image_name(plan: Plan, directory: Path) -> Plan:
    """Return the plan with the name of the image that will be built; raise InputError if a file of it is missing."""
    cluster = cluster_of(plan)
    if not cluster.image.is_built:
        return plan
    image = cluster.image.replace(name=Recipe(str(directory), cluster.image).name(plan.project))
    return with_cluster(plan, cluster.replace(image=image))


def require_builder(plan: Plan, environ: Mapping[str, str]) -> None:
    """Raise EngineError if the plan's image has to be built and no builder works."""
    if cluster_of(plan).image.is_built and find_builder(environ) is None:
        raise EngineError(explain_no_builder(environ), hint=INSTALL)


class BuildHelper:
    """Starts, stops and watches the build of one run."""

    def __init__(self, run_dir: Path, site: Site, loop: AbstractEventLoop, report: ReportEvent) -> None:
        self._site = site
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._processes = Processes(run_dir, boot=boot_id(), file_limits=limits, loop=loop, report=report)

    def start(self, plan: Plan, *, incarnation: int = 0) -> None:
        """Start the build, unless it was started before."""
        cluster = cluster_of(plan)
        if cluster.image.name is None:
            raise AssertionError("an image has a name before it is built")
        cache = self._site.cache or self._site.home / "cache"
        lock = cache / "images" / f"{cluster.image.name.rpartition(':')[2]}.lock"
        directory = str(self._site.directory)
        image = json.dumps(to_dict(cluster.image))
        argv = (sys.executable, "-P", "-m", _MODULE, cluster.image.name, str(lock), directory, image)
        launch = Launch(
            Replica(BUILD, str(BUILD), argv, {}, Resources()), 0, Place("", 0, directory, "", ""), {}, incarnation
        )
        self._processes.start([launch], lambda _: dict(os.environ), {})

    def stop(self, builds: Sequence[Incarnation], *, grace_seconds: float) -> None:
        """Begin to stop the build; its exit is reported."""
        self._processes.stop(builds, grace_seconds=grace_seconds)

    def traces(self) -> Iterator[Path]:
        """Yield the trace folder of the build while it runs, and once after its end."""
        return self._processes.traces()
