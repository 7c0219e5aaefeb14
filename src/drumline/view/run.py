"""One run in detail: its state, its replicas, its launch, and the causes of earlier attempts."""

from __future__ import annotations

import json

from drumline.plan.types import TENSORBOARD, Plan, ReplicaId, Resources
from drumline.record import Record
from drumline.run.entry import Entry
from drumline.run.event import Exit, ReplicaExited, ReplicaStarted
from drumline.run.goodput import Goodput
from drumline.run.state import Phase, Revival, RunState
from drumline.run.traces import ERROR, PLACES, trace_dir
from drumline.runtime.errors import Error, read_error
from drumline.runtime.lock import is_locked
from drumline.store.clock import Moment
from drumline.store.folder import RunFolder
from drumline.store.launch import read_facts
from drumline.store.reachability import read_reachability
from drumline.store.summary import moment_of, read_history, spell_verdict, summarise_history
from drumline.view.card import Card, make_card, python_of_launch
from drumline.view.goodput import read_goodput
from drumline.view.incarnation import IncarnationTraces
from drumline.view.progress import read_all_progress
from drumline.view.replica_progress import ReplicaProgress
from drumline.view.runs import RunRow, make_row
from drumline.view.scalars import output_dir


class ReplicaRow(Record):
    """One replica or helper in the current attempt."""

    id: ReplicaId
    phase: Phase
    is_chief: bool
    attempt: int
    incarnation: int
    started_at: float | None
    duration_seconds: float | None  # so far, if it runs
    exit: Exit | None
    reason: str
    resources: Resources
    progress: ReplicaProgress = ReplicaProgress()
    error: Error | None = None  # the exception that ended the script, if it was recorded
    waits: str = ""  # why it has not started yet, if that is known
    host: str = ""  # empty for this machine


class CauseRow(Record):
    """Why an earlier attempt ended."""

    attempt: int
    replica: ReplicaId | None
    reason: str
    message: str


class RunDetails(Record):
    """Everything that is known about a run."""

    run: RunRow
    plan: Plan
    replicas: tuple[ReplicaRow, ...]
    causes: tuple[CauseRow, ...]
    revivals: tuple[Revival, ...]  # restarts of some replicas within attempts
    warnings: tuple[str, ...]
    output_dir: str
    revision: str | None
    is_dirty: bool | None
    folder: str
    chief_progress: ReplicaProgress = ReplicaProgress()
    tensorboard: TensorBoardRow | None = None  # None if TensorBoard was never started
    goodput: Goodput | None = None  # None before the run has a supervisor
    card: Card | None = None  # None if the run has not failed
    python: tuple[str, str] | None = None  # the interpreter that `python` meant at the launch, and why


class TensorBoardRow(Record):
    """TensorBoard beside a run: its phase, and its address; empty while it cannot be reached."""

    phase: Phase
    address: str


class _Times(Record):
    """When a replica started and ended in the current attempt."""

    started: Moment | None = None
    ended: Moment | None = None


def run_details(folder: RunFolder, now: Moment) -> RunDetails:
    """Read a run; raise DrumlineError if it cannot be read."""
    supervised = is_locked(folder.lock_file)  # first: see `view.runs`
    history = read_history(folder)
    plan, state = history.plan, history.state
    summary = summarise_history(folder, history)
    facts = read_facts(folder)
    times = _times(history.records, state)
    claims = {replica.id: replica.resources for replica in plan.replicas}
    names = (*plan.all_ids, *((TENSORBOARD,) if state.tensorboard else ()))
    bare = [_row(name, plan, state, times.get(name, _Times()), claims.get(name, Resources()), now) for name in names]
    output = output_dir(folder, plan, str(facts.get("directory", "")))
    hosts = _hosts(folder, state.attempt) if plan.is_elsewhere else {}
    bare = [row.replace(host=hosts.get(str(row.id), "")) for row in bare]
    rows = _with_progress(folder, state, bare, output, now)
    revision, is_dirty = facts.get("revision"), facts.get("dirty")
    return RunDetails(
        run=make_row(summary, now, supervised=supervised, reach=read_reachability(folder.path)),
        plan=plan,
        replicas=rows,
        causes=tuple(
            CauseRow(cause.attempt, cause.replica, cause.reason, spell_verdict(folder.id, cause, verdict))
            for cause, verdict in zip(state.causes, state.verdicts, strict=True)
        ),
        revivals=state.revivals,
        warnings=state.warnings,
        output_dir=output,
        revision=revision if isinstance(revision, str) else None,
        is_dirty=is_dirty if isinstance(is_dirty, bool) else None,
        folder=str(folder.path),
        chief_progress=next((row.progress for row in rows if row.is_chief), ReplicaProgress()),
        tensorboard=state.tensorboard and TensorBoardRow(state.tensorboard.phase, state.tensorboard_address),
        goodput=read_goodput(folder, history, now),
        python=python_of_launch(folder, plan),
        card=make_card(folder, plan, history.records, state, {row.id: row.progress for row in rows}),
    )


def _hosts(folder: RunFolder, attempt: int) -> dict[str, str]:
    """Return the hosts of the replicas of an attempt; empty if it was not placed yet."""
    try:
        data = json.loads((folder.path / "attempts" / str(attempt) / PLACES).read_text("utf-8"))
        return {name: host for name, (host, *_) in data.items()}
    except (OSError, ValueError):
        return {}


def _times(records: list[Entry], state: RunState) -> dict[ReplicaId, _Times]:
    """Return when each replica of the current attempt started and ended."""
    times: dict[ReplicaId, _Times] = {}
    for record in records:
        event = record.event
        if not isinstance(event, ReplicaStarted | ReplicaExited):
            continue
        if event.attempt != state.attempt and not event.replica.is_helper:
            continue
        own = state.state_of(event.replica)
        if own and event.incarnation != own.incarnation:
            continue  # an event of an earlier incarnation
        if isinstance(event, ReplicaStarted):
            times.setdefault(event.replica, _Times(moment_of(record)))
        else:
            span = times.get(event.replica, _Times())
            times[event.replica] = span.replace(ended=_end(record, event, span.started))
    return times


def _end(record: Entry, event: ReplicaExited, started: Moment | None) -> Moment:
    """Return when a replica ended: by its keeper's clock if that is plausible, else when its exit was recorded.

    A new supervisor may record an exit much later.
    """
    written = moment_of(record)
    if started and started.boot == record.boot and started.since_boot <= event.at_seconds <= record.since_boot:
        return Moment(record.at - record.since_boot + event.at_seconds, event.at_seconds, record.boot)
    return written


def _row(name: ReplicaId, plan: Plan, state: RunState, span: _Times, resources: Resources, now: Moment) -> ReplicaRow:
    own = state.state_of(name)
    phase = own.phase if own else state.phase
    if name in state.reviving and phase.is_final and state.ending is None:
        phase = Phase.RESTARTING
    until = span.ended or (None if phase.is_final else now)
    return ReplicaRow(
        id=name,
        phase=phase,
        is_chief=name == plan.chief,
        attempt=0 if name.is_helper else state.attempt,
        incarnation=own.incarnation if own else 0,
        started_at=span.started.at if span.started else None,
        duration_seconds=until.seconds_since(span.started) if span.started and until else None,
        exit=own.exit if own else None,
        reason=own.reason if own else "",
        resources=resources,
        waits=own.waits if own else "",
    )


def _with_progress(
    folder: RunFolder, state: RunState, rows: list[ReplicaRow], output: str, now: Moment
) -> tuple[ReplicaRow, ...]:
    """Return the rows with the progress of each replica, and with the errors of replicas that have ended."""
    incarnations: dict[ReplicaId, IncarnationTraces] = {}
    for row in rows:
        own = state.state_of(row.id)
        if own and row.started_at is not None and not row.id.is_helper:
            traces = folder.path / trace_dir(row.id, row.attempt, own.incarnation)
            ended_at = None if row.phase is Phase.RUNNING else row.started_at + (row.duration_seconds or 0.0)
            incarnations[row.id] = IncarnationTraces(traces, row.started_at, ended_at)
    chief = next((row.id for row in rows if row.is_chief), None)
    by_replica = read_all_progress(incarnations, output, chief, now.at)
    errors = {name: read_error(each.folder / ERROR) for name, each in incarnations.items() if each.ended_at is not None}
    return tuple(row.replace(progress=by_replica.get(row.id, row.progress), error=errors.get(row.id)) for row in rows)
