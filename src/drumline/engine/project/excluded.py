"""Folders in a project's folder that are not part of the project."""

from __future__ import annotations

from pathlib import Path

from drumline.engine.protocol import Site
from drumline.plan.types import Plan


def excluded_folders(plan: Plan, site: Site) -> list[Path]:
    """Return the folders into which runs write: output and checkpoints on this machine, and drumline's home."""
    named = [path for path in (plan.output, plan.checkpoint) if path and Path(path) != Path()]
    return [*(site.directory / path for path in named), site.home]
