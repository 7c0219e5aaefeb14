"""What a training script may import: who am I, where do I write, how far am I. Standard library only.

Nothing else of drumline is needed: this folder works copied into an image as `drumline/runtime`, and a script that
runs alone, without drumline, is the chief and only worker. Helpers for one framework are `drumline.runtime.tensorflow`
and `drumline.runtime.keras`.
"""

from __future__ import annotations

import os  # and nothing else: whoever starts replicas imports this package too, and people wait for that

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

# Set by the engine, not by the plan: the folder in which this life of the replica leaves its traces.
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
    """`chief`, `worker`, `ps` or `evaluator`; `worker` for a script that runs alone."""
    return _task()[0]


def index() -> int:
    """The replica's number within its role, from 0."""
    return _task()[1]


def is_chief() -> bool:
    """Whether this replica saves for all: the chief, without one worker 0; also a script that runs alone."""
    me, number = _task()
    if chief := os.environ.get("DRUMLINE_CHIEF"):
        return chief == f"{me}.{number}"
    return me == "chief" or (me == "worker" and number == 0 and "chief" not in cluster())


def attempt() -> int:
    """0, and one more each time the whole line started again."""
    return int(os.environ.get("DRUMLINE_ATTEMPT") or 0)


def cluster() -> dict[str, list[str]]:
    """The addresses of everybody by role, from TF_CONFIG; empty without one."""
    from drumline.runtime.tfconfig import read_config

    config = read_config()
    return config.cluster if config else {}


def output_dir() -> Path:
    """Where results go, made if it is missing: OUTPUT_DIR, else `output` here."""
    from drumline.runtime.folders import make

    return make(os.environ.get("OUTPUT_DIR") or "output")


def checkpoint_dir() -> Path:
    """Where checkpoints go, made if it is missing: CHECKPOINT_DIR, else `checkpoint` in the output folder."""
    from drumline.runtime.folders import make

    return make(os.environ.get("CHECKPOINT_DIR") or output_dir() / "checkpoint")


def write_dir(path: str | os.PathLike[str]) -> Path:
    """The folder itself for the chief; for everybody else a private one, the same each time, gone at the end.

    For saving in which all must take part and only the chief's copy is to stay.
    """
    from drumline.runtime.folders import make, private

    return make(path) if is_chief() else private(path)


def report(*, step: int, **values: float) -> None:
    """Say how far the training is; cheap enough for every step. Only the last report counts."""
    from drumline.runtime.progress import write_report

    write_report(step, values)


def record_errors() -> None:
    """Keep an exception that nobody catches as data beside the log; it is printed as always."""
    from drumline.runtime.errors import install

    install()


def serve_if_server() -> None:
    """Serve for ever on a parameter server, or a worker that a chief gives work to; return on everybody else."""
    if "ps" in cluster() and role() in ("ps", "worker"):
        from drumline.runtime.tensorflow import serve

        serve()


def _task() -> tuple[str, int]:
    """Role and index: drumline's word, else TF_CONFIG's, else that of torchrun, else all alone."""
    if known := os.environ.get("DRUMLINE_ROLE"):
        return known, int(os.environ.get("DRUMLINE_INDEX") or 0)
    from drumline.runtime.tfconfig import read_config

    config = read_config()
    if config:
        return ("chief" if config.role == "master" else config.role), config.index
    return "worker", int(os.environ.get("RANK") or 0)
