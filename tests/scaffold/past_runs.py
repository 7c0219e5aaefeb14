"""Folders of runs without processes, with fixed clocks."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from drumline.plan.types import ReplicaId
from drumline.run.event import AttemptPlaced, Event, Exit, ReplicaExited, ReplicaStarted, RunAccepted
from drumline.run.fold import fold, new_run
from drumline.run.machine import transition
from drumline.store.clock import Moment
from drumline.store.folder import RunFolder
from drumline.store.home import write_version
from drumline.store.index import Summary
from drumline.store.journal import Journal, read_journal
from drumline.store.launch import write_launch
from scaffold.plans import plan_of

NOON = 1_704_110_400.0  # 2024-01-01T12:00:00Z
WORKER, SECOND = ReplicaId("worker", 0), ReplicaId("worker", 1)
NOW = Moment(NOON + 100, 600.0, "boot-a")

ONE_WORKER = "framework: plain"
TWO_WORKERS = "framework: plain\nroles: {worker: 2}"


def write_run(
    home: Path,
    number: int,
    events: Iterable[tuple[Moment, Event]] = (),
    *,
    spec: str = ONE_WORKER,
    directory: str | Path = "/project",
    at: float = NOON,
) -> RunFolder:
    """Write a run's folder: its plan, the facts of its launch, and a journal of these events."""
    folder = RunFolder(home / "runs" / str(number))
    folder.path.mkdir(parents=True)
    write_version(home)
    plan = plan_of(spec, run=str(number))
    write_launch(folder, plan, spec=spec.encode(), directory=Path(directory), at=at)
    append(folder, events)
    return folder


def append(folder: RunFolder, events: Iterable[tuple[Moment, Event]]) -> None:
    """Append events to a run's journal."""
    plan = folder.plan()
    state = new_run(plan)
    for entry in read_journal(folder.journal_file, plan):
        state = fold(state, entry.event, *entry.decisions)
    for moment, event in events:
        journal = _open(folder, moment)
        reached = transition(plan, state, event)
        journal.append([(event, reached.decisions)])
        journal.close()
        state = reached.state


def moments(*, boot: str = "boot-a", up: float = 500.0, at: float = NOON) -> tuple[Moment, Moment, Moment, Moment]:
    """Return four moments, ten seconds apart."""
    first, second, third, fourth = (Moment(at + passed, up + passed, boot) for passed in (0, 10, 20, 30))
    return first, second, third, fourth


def finished(*, boot: str = "boot-a", code: int = 0, up: float = 500.0) -> list[tuple[Moment, Event]]:
    """Return the events of a run of one worker: accepted, placed, started after ten seconds, ended after thirty."""
    accepted, started, _, ended = moments(boot=boot, up=up)
    exited = ReplicaExited(WORKER, 0, 0, Exit(code), ended.since_boot)
    return [*running(accepted, started), (ended, exited)]


def running(accepted: Moment, started: Moment) -> list[tuple[Moment, Event]]:
    """Return the events of a run of one worker that has not ended."""
    return [
        (accepted, RunAccepted()),
        (accepted, AttemptPlaced(0, ("127.0.0.1:20000",))),
        (started, ReplicaStarted(WORKER, 0)),
    ]


def summary_of(number: int, *, directory: str = "/project", **fields: object) -> Summary:
    """Return the row of a run in the index."""
    row = Summary(
        id=str(number),
        number=number,
        directory=directory,
        project="digits",
        name="digits",
        framework="plain",
        engine="local",
        phase="FINISHED",
        is_final=True,
        reason="",
        message="",
        created_at=NOON,
        started_at=NOON,
        started_since_boot=500.0,
        started_boot="boot-a",
        finished_at=NOON + 20,
        duration_seconds=20.0,
        attempt=0,
        roles="worker=1",
        parameters="{}",
        journal_bytes=10,
        journal_changed_ns=20,
    )
    return row.replace(**fields)


def _open(folder: RunFolder, moment: Moment) -> Journal:
    return Journal(folder.journal_file, boot=moment.boot, wall=lambda: moment.at, since_boot=lambda: moment.since_boot)
