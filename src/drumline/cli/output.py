"""The output of a run, and the engine that it ran on."""

from __future__ import annotations

from pathlib import Path

from drumline.engine.output import RunOutput
from drumline.engine.protocol import Engine
from drumline.engine.registry import open_engine
from drumline.supervise.site import site_of
from drumline.view.run import RunDetails


def engine_of(details: RunDetails) -> Engine:
    """Return the engine of a run; raise EngineError if it is not installed."""
    return open_engine(details.plan.engine, site_of(details.run.summary.directory))


def output_of(details: RunDetails) -> RunOutput:
    """Return the output folder and the run folder of a run, with its plan."""
    return RunOutput(details.plan, Path(details.output_dir), Path(details.folder))
