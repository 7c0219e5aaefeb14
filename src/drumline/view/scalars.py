"""Read the progress of replicas from TensorBoard's files: find the replica that wrote each file."""

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

_MOST_FILES = 4  # files that are read for each replica


def output_dir(folder: RunFolder, plan: Plan, directory: str) -> str:
    """Return the output folder of a run on this machine.

    This is `output` of the spec, relative to the project's folder, else a folder in the run's folder. Output of a run
    on hosts is copied into it.
    """
    if plan.fetches_output:
        return fetched_folder(directory, plan.output) or str(folder.output_dir)
    return os.path.normpath(os.path.join(directory, plan.output)) if plan.output else str(folder.output_dir)  # noqa: PTH118


def read_written(
    output: str, incarnations: Mapping[ReplicaId, IncarnationTraces], chief: ReplicaId | None
) -> dict[ReplicaId, tuple[Progress, float]]:
    """Return the progress in TensorBoard's files by replica, and when it was written (UTC, seconds).

    `chief` is not None only if `incarnations` are all of the attempt: then a file of an unknown process may belong to
    the chief.
    """
    files = find_event_files(output)
    if not files:
        return {}
    found: dict[ReplicaId, tuple[Progress, float]] = {}
    for name, own in _writers(files, incarnations, chief).items():
        said = [progress_in(last_scalars(file), by_keras=file.folder == BY_KERAS) for file in own[:_MOST_FILES]]
        if known := [each for each in said if each]:
            found[name] = max(known, key=lambda each: each[1])
    return found


def _writers(
    files: list[EventFile], incarnations: Mapping[ReplicaId, IncarnationTraces], chief: ReplicaId | None
) -> dict[ReplicaId, list[EventFile]]:
    """Return the files that each replica, or a process that it started, has written.

    Files in the run's folder of a single process that has ended count as files of the chief, if it has no other files.
    A file that is older than an incarnation belongs to another run or another attempt.
    """
    pids = {pid: name for name, each in incarnations.items() if (pid := pid_of(each.folder)) is not None}
    by_writer: dict[ReplicaId, list[EventFile]] = {}
    strangers: set[int | None] = set()
    of_strangers: list[EventFile] = []
    of_chief = incarnations.get(chief) if chief else None
    for file in files:
        session = None if file.pid is None else session_of(file.pid)
        name = pids.get(file.pid or 0) or pids.get(session or 0)
        if name:
            if _is_of(file, incarnations[name]):
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


def _is_of(file: EventFile, traces: IncarnationTraces) -> bool:
    return int(traces.started_at) <= file.made_at and (traces.ended_at is None or file.made_at <= traces.ended_at)
