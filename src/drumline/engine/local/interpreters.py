"""The Python of replicas: an environment of the plan, or another Python with a copy of drumline's runtime."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from drumline.engine.interpreter import has_drumline
from drumline.engine.protocol import Site
from drumline.plan.types import Place, Plan

if TYPE_CHECKING:
    from drumline.engine.local.python import RunPython


class Interpreters:
    """Finds the Python of a plan; with `copies`, copies the runtime for a Python without drumline."""

    def __init__(self, site: Site, environ: Mapping[str, str], *, copies: bool) -> None:
        self._site = site
        self._environ = environ
        self._copies = copies
        self._last: RunPython | None = None

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Return the descriptors that keepers inherit, so that the environment of the last plan is not removed."""
        return tuple(self._last.descriptors) if self._last else ()

    def of(self, plan: Plan) -> RunPython | None:
        """Return the environment of a plan; None if it has none."""
        if plan.environment is None:
            self._last = None
        elif self._last is None or self._last.environment != plan.environment:
            from drumline.engine.local.python import RunPython  # noqa: PLC0415  # only if the plan has one

            self._last = RunPython(plan.environment, self._site, self._environ)
        return self._last

    def applied(self, plan: Plan) -> Callable[[Place], Place]:
        """Return a function that adds the plan's environment to a place, or the copied runtime if needed."""
        if python := self.of(plan):
            return python.applied
        runtime = self.copied_runtime()
        return lambda place: place.replace(runtime=runtime, runtime_on_path=True) if runtime else place

    def copied_runtime(self) -> str | None:
        """Return the folder with a copy of the runtime for a Python without drumline; None if it has drumline."""
        python = self._site.python
        if python is None or python.folder == str(Path(sys.executable).parent) or has_drumline(python, self._environ):
            return None
        from drumline.engine.local.python import copy_runtime, runtime_folder  # noqa: PLC0415  # only where it is needed

        folder = runtime_folder(self._site)
        if self._copies:
            copy_runtime(folder)
        return folder
