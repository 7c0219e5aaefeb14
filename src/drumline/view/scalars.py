"""Who wrote which of TensorBoard's files, and how far these say that each is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from drumline.plan.types import Plan, ReplicaId
from drumline.run.origin import fetched_folder
from drumline.run.progress import Progress
from drumline.run.scalars import progress_in
from drumline.store.folder import RunFolder
from drumline.store.scalars import BY_KERAS, EventFile, find_event_files, last_scalars
from drumline.store.writers import pid_of, session_of
from drumline.view.incarnation import IncarnationTraces

_MOST_FILES = 4  # of each replica


def output_dir(folder: RunFolder, plan: Plan, directory: str) -> str:
    """Where the run writes: as its spec says, seen from the project; else in its own folder.

    Of a run on hosts that is where their output comes: what is a path of theirs alone comes into its own folder.
    """
    if plan.fetches_output:
        return fetched_folder(directory, plan.output) or str(folder.output_dir)
    return os.path.normpath(os.path.join(directory, plan.output)) if plan.output else str(folder.output_dir)  # noqa: PTH118


def read_written(
    output: str, lives: Mapping[ReplicaId, IncarnationTraces], chief: ReplicaId | None
) -> dict[ReplicaId, tuple[Progress, float]]:
    """How far those are who wrote files that say so, and when they did.

    What nobody known wrote may be the chief's, if it is named: only where `lives` are all that there were.
    """
    files = find_event_files(output)
    if not files:
        return {}
    found: dict[ReplicaId, tuple[Progress, float]] = {}
    for name, own in _writers(files, lives, chief).items():
        said = [progress_in(last_scalars(file), by_keras=file.folder == BY_KERAS) for file in own[:_MOST_FILES]]
        if known := [each for each in said if each]:
            found[name] = max(known, key=lambda each: each[1])
    return found


def _writers(
    files: list[EventFile], lives: Mapping[ReplicaId, IncarnationTraces], chief: ReplicaId | None
) -> dict[ReplicaId, list[EventFile]]:
    """Files by who wrote them: a replica, a process that it started, or a process that is no more.

    That one is taken for the chief's in the run's own folder, if there is one such and nobody else to be the chief's.
    A file that was made before a life is of another run in the same folder, or of another attempt.
    """
    pids = {pid: name for name, life in lives.items() if (pid := pid_of(life.folder)) is not None}
    by_writer: dict[ReplicaId, list[EventFile]] = {}
    strangers: set[int | None] = set()
    of_strangers: list[EventFile] = []
    of_chief = lives.get(chief) if chief else None
    for file in files:
        session = None if file.pid is None else session_of(file.pid)
        name = pids.get(file.pid or 0) or pids.get(session or 0)
        if name:
            if _is_of(file, lives[name]):
                by_writer.setdefault(name, []).append(file)
        elif (
            session is None
            and of_chief
            and _is_of(file, of_chief)
            and of_chief.folder.parents[2] in Path(file.path).parents
        ):
            strangers.add(file.pid)
            of_strangers.append(file)
    if chief and len(strangers) == 1 and chief not in by_writer:
        by_writer[chief] = of_strangers
    return by_writer


def _is_of(file: EventFile, life: IncarnationTraces) -> bool:
    return int(life.started_at) <= file.made_at and (life.ended_at is None or file.made_at <= life.ended_at)
