"""The site of a command or a run: the project's folder, the home, the cores and the Python of this machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from drumline.engine.interpreter import find_interpreter
from drumline.engine.protocol import Interpreter, Site
from drumline.store.access import open_home
from drumline.store.folder import RunFolder
from drumline.store.home import cache_of
from drumline.store.launch import read_facts, read_python


def site_of(directory: str | Path, python: Interpreter | None = None) -> Site:
    """Return the site of a spec in this directory; without `python`, the interpreter is searched for now."""
    python = python or find_interpreter(os.environ, own=sys.executable, base=_base(), program=sys.argv[0])
    usual = next((each for each in os.get_exec_path() if os.access(f"{each}/python", os.X_OK)), None)
    same = usual is not None and Path(usual) == Path(python.folder)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Site(
        Path(directory),
        open_home(os.environ),
        cores,
        None if same else python.folder,
        cache=cache_of(os.environ),
        python=python,
    )


def site_of_run(folder: RunFolder) -> Site:
    """Return the site of an existing run, with the Python of its launch, even if that interpreter no longer exists."""
    facts = read_facts(folder)
    known = read_python(facts)
    site = site_of(facts.get("directory", "."), Interpreter(*known) if known else None)
    return site.replace(
        next_supervisor=(sys.executable, "-P", "-m", "drumline.supervise.next_supervisor", str(folder.path))
    )


def _base() -> str:
    return str(getattr(sys, "_base_executable", None) or sys.executable)
