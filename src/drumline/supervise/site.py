"""The world as this command finds it: home, cores, Python."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from drumline.engine.protocol import Site
from drumline.store.folder import RunFolder
from drumline.store.home import cache_of, home_of
from drumline.store.launch import read_facts


def site_of(directory: str | Path) -> Site:
    """The site of a spec in this directory."""
    python_dir = str(Path(sys.executable).parent)
    usual = next((each for each in os.get_exec_path() if os.access(f"{each}/python", os.X_OK)), None)
    same = usual is not None and Path(usual) == Path(python_dir)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Site(Path(directory), home_of(os.environ), cores, None if same else python_dir, cache=cache_of(os.environ))


def site_of_run(folder: RunFolder) -> Site:
    """The site of a run that was launched before."""
    return site_of(read_facts(folder).get("directory", "."))
