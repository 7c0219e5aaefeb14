"""Compute the row of a run from its folder."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

from drumline.errors import DrumlineError, EngineError
from drumline.plan.types import Plan
from drumline.record import Record
from drumline.run.codec import event_to_data
from drumline.run.describe import describe_waits
from drumline.run.entry import Entry
from drumline.run.event import Cause, ReplicaStarted
from drumline.run.fold import fold, new_run
from drumline.run.resume import PREEMPTED
from drumline.run.state import RunState
from drumline.store.clock import Moment
from drumline.store.folder import RunFolder
from drumline.store.index import Summary, UnusableIndexError, clean_text, spell_directory, stamp_of, use_index
from drumline.store.journal import read_journal
from drumline.store.launch import read_facts


class History(Record):
    """The plan, the entries of the journal, and the state of a run."""

    plan: Plan
    records: list[Entry]
    state: RunState
    started: Moment | None  # the first start of a replica
    finished: Moment | None  # the end of the run


def read_history(folder: RunFolder) -> History:
    """Read a run's plan and journal; raise DrumlineError if they cannot be read."""
    started, finished = None, None
    try:
        plan = folder.plan()
        state = new_run(plan)
        records = read_journal(folder.journal_file, plan)
        for record in records:
            state = fold(state, record.event, *record.decisions)
            if started is None and isinstance(record.event, ReplicaStarted):
                started = moment_of(record)
            if not state.phase.is_final:
                finished = None  # a run that was over may have been resumed
            elif finished is None:
                finished = moment_of(record)
    except OSError as error:
        raise EngineError(f"run {folder.id} cannot be read: {error.strerror}") from None
    return History(plan, records, state, started, finished)


def moment_of(record: Entry) -> Moment:
    """Return when an entry was recorded."""
    return Moment(record.at, record.since_boot, record.boot)


def summarise(folder: RunFolder) -> Summary:
    """Read a run's folder into a row; raise DrumlineError if it cannot be read."""
    size, changed = stamp_of(folder.journal_file)  # first, so that an entry that is added later makes the row outdated
    return summarise_history(folder, read_history(folder)).replace(journal_bytes=size, journal_changed_ns=changed)


def summarise_history(folder: RunFolder, history: History) -> Summary:
    """Return the row of a run with this history, without the stamp of its journal."""
    plan, records, state = history.plan, history.records, history.state
    started, finished = history.started, history.finished
    facts = read_facts(folder)
    ending = state.ending if state.phase.is_final else None
    stalled, stalled_at = _stall(records, state)
    return Summary(
        id=folder.id,
        number=int(folder.id) if folder.id.isdecimal() else 0,
        directory=spell_directory(str(facts.get("directory", ""))),
        project=plan.project,
        name=plan.name,
        framework=plan.framework,
        engine=plan.engine,
        phase=state.phase.value,
        is_final=state.phase.is_final,
        reason=clean_text(ending.reason) if ending else "",
        message=clean_text(_describe_ending(folder.id, state) if ending else describe_waits(state)),
        created_at=float(facts.get("at") or (records[0].at if records else 0.0)),
        started_at=started.at if started else None,
        started_since_boot=started.since_boot if started else None,
        started_boot=started.boot if started else None,
        finished_at=finished.at if finished else None,
        duration_seconds=finished.seconds_since(started) if started and finished else None,
        attempt=state.attempt,
        roles=" ".join(f"{role}={number}" for role, number in Counter(each.id.role for each in plan.replicas).items()),
        parameters=json.dumps(dict(plan.parameters)),
        journal_bytes=0,
        journal_changed_ns=0,
        stalled=stalled,
        stalled_at=stalled_at,
    )


def _stall(records: Sequence[Entry], state: RunState) -> tuple[str, float | None]:
    """Return the StepsStalled event of a stalled run, as JSON, and the time (UTC, seconds) of its last step."""
    record = next((each for each in reversed(records) if each.event is state.stalled), None)
    if state.stalled is None or state.ending or record is None:
        return "", None
    return json.dumps(event_to_data(state.stalled)), record.at - state.stalled.seconds


def _describe_ending(run: str, state: RunState) -> str:
    """Return why a run is over, and how to resume a preempted run; empty for a run without a cause."""
    ending = state.ending
    why = spell_verdict(run, ending.cause, state.verdict) if ending and ending.cause else ""
    if ending is None or ending.reason != PREEMPTED:
        return why
    return f"{why or 'preempted'}; `drumline resume {run}` goes on with it"


def spell_verdict(run: str, cause: Cause, verdict: str) -> str:
    """Return the recorded message of a cause with the full id of its replica: `4.worker.1: exit code 1`."""
    return f"{run}.{verdict}" if cause.replica else verdict


def record_run(folder: RunFolder) -> None:
    """Write the row of a run to the index; if that fails, the next listing of runs writes it."""
    with suppress(UnusableIndexError, DrumlineError):
        summary = summarise(folder)
        use_index(folder.path.parent.parent, lambda index: index.put([summary]))
