"""Functions for training scripts: role, folders, progress reports. Standard library only.

Nothing else of drumline is needed: this folder can be copied into an image as `drumline/runtime`. A script that runs
without drumline is the chief and only worker. Helpers for one framework are `drumline.runtime.tensorflow`
and `drumline.runtime.keras`.
"""

from __future__ import annotations

import os  # and nothing else: this import has to be fast

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

# Set by the engine, not by the plan: the trace folder of this incarnation.
TRACE_DIR = "DRUMLINE_TRACE"

__all__ = [
    "attempt",
    "checkpoint_dir",
    "cluster",
    "index",
    "is_chief",
    "output_dir",
    "record_errors",
    "report",
    "role",
    "serve_if_server",
    "write_dir",
]


def role() -> str:
    """Return `chief`, `worker`, `ps` or `evaluator`; `worker` for a script that runs alone."""
    return _task()[0]


def index() -> int:
    """Return the replica's number within its role, from 0."""
    return _task()[1]


def is_chief() -> bool:
    """Return whether this replica saves for all: the chief, or worker 0 without a chief; True for a script alone."""
    name, number = _task()
    if chief := os.environ.get("DRUMLINE_CHIEF"):
        return chief == f"{name}.{number}"
    return name == "chief" or (name == "worker" and number == 0 and "chief" not in cluster())


def attempt() -> int:
    """Return the number of the attempt, from 0; each restart of the whole run adds one."""
    return int(os.environ.get("DRUMLINE_ATTEMPT") or 0)


def cluster() -> dict[str, list[str]]:
    """Return the addresses of all replicas by role, from TF_CONFIG; empty without one."""
    from drumline.runtime.tfconfig import read_config

    config = read_config()
    return config.cluster if config else {}


def output_dir() -> Path:
    """Return the folder for results, created if missing: OUTPUT_DIR, else `output` in the current folder."""
    from drumline.runtime.folders import make

    return make(os.environ.get("OUTPUT_DIR") or "output")


def checkpoint_dir() -> Path:
    """Return the folder for checkpoints, created if missing: CHECKPOINT_DIR, else `checkpoint` in the output folder."""
    from drumline.runtime.folders import make

    return make(os.environ.get("CHECKPOINT_DIR") or output_dir() / "checkpoint")


def write_dir(path: str | os.PathLike[str]) -> Path:
    """Return this folder for the chief, and for other replicas a private folder, which is removed at exit.

    Use it if all replicas have to take part in saving, and only the chief's copy is kept.
    """
    from drumline.runtime.folders import make, private

    return make(path) if is_chief() else private(path)


def report(*, step: int, **values: float) -> None:
    """Report the progress of the training; cheap enough for every step. A new report replaces the last one."""
    from drumline.runtime.progress import write_report

    write_report(step, values)


def record_errors() -> None:
    """Install a hook that records an uncaught exception as data beside the log, and prints it as usual."""
    from drumline.runtime.errors import install

    install()


def serve_if_server() -> None:
    """On a parameter server, or a worker with a coordinating chief, serve until killed; return on other replicas."""
    if "ps" in cluster() and role() in ("ps", "worker"):
        from drumline.runtime.tensorflow import serve

        serve()


def _task() -> tuple[str, int]:
    """Return role and index from drumline's variables, else TF_CONFIG, else torchrun's RANK."""
    if known := os.environ.get("DRUMLINE_ROLE"):
        return known, int(os.environ.get("DRUMLINE_INDEX") or 0)
    from drumline.runtime.tfconfig import read_config

    config = read_config()
    if config:
        return ("chief" if config.role == "master" else config.role), config.index
    return "worker", int(os.environ.get("RANK") or 0)
