"""The failure card of a run: the cause, its time and progress, the end of its log, and later failures."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from drumline.plan.types import Plan, ReplicaId
from drumline.record import Record
from drumline.run.entry import Entry
from drumline.run.event import Cause, ReplicaExited, ReplicaStarted
from drumline.run.evidence import TAIL_BYTES, closing_exception
from drumline.run.exception import find_raised, is_noise, text_lines, trim_traceback
from drumline.run.failure import describe_exit
from drumline.run.state import Phase, RunState
from drumline.run.traces import ERROR, LOG, trace_dir
from drumline.runtime.errors import Error, read_error
from drumline.store.folder import RunFolder
from drumline.store.launch import read_facts, read_python
from drumline.store.logs import read_end
from drumline.view.replica_progress import ReplicaProgress

_LAST_LINES = 8  # lines that are shown of a log without a traceback


class LaterFailures(Record):
    """Replicas that failed after the cause, all with the same message."""

    replicas: tuple[ReplicaId, ...]
    said: str  # the message
    is_own: bool = False  # they failed by themselves, not as a consequence of the cause


class Card(Record):
    """The cause of a failed run, with data that helps to understand it."""

    cause: Cause
    words: str  # how the replica ended
    at: float | None  # when the replica ended; UTC, seconds
    started_at: float | None = None  # when the failed incarnation started
    progress: ReplicaProgress = ReplicaProgress()  # of the replica `progress_of`
    progress_of: ReplicaId | None = None
    lines: tuple[str, ...] = ()
    is_traceback: bool = False  # `lines` are a traceback; else the last lines of the log
    later_failures: tuple[LaterFailures, ...] = ()
    stopped: tuple[ReplicaId, ...] = ()  # replicas that drumline stopped because of the failure
    python: tuple[str, str] | None = None  # the interpreter that ran `python` of the command, and why it was chosen
    corrects: Cause | None = None  # the first recorded cause, if later evidence corrected it


def make_card(
    folder: RunFolder,
    plan: Plan,
    records: Sequence[Entry],
    state: RunState,
    by_replica: Mapping[ReplicaId, ReplicaProgress],
) -> Card | None:
    """Return the card of a run that has failed, or that fails while its replicas are stopped; None for any other."""
    cause = state.known_cause
    if cause is None:
        return None
    name = cause.replica
    far = next(
        (each for each in (name, plan.chief) if each and by_replica.get(each, ReplicaProgress()).at is not None), None
    )
    card = Card(
        cause,
        describe_exit(cause.exit),
        _moment(records, state, cause),
        progress=by_replica[far] if far else ReplicaProgress(),
        progress_of=far,
        corrects=state.named[0] if len(state.named) > 1 else None,
    )
    if name is None:
        return card
    own = state.state_of(name)
    traces = folder.path / trace_dir(name, cause.attempt, own.incarnation if own else 0)
    lines, is_traceback = _excerpt(traces, has_failed=cause.exit.seen or bool(cause.said))
    later_failures, stopped = _others(state, name)
    return card.replace(
        started_at=_started(records, cause, name),
        lines=lines,
        is_traceback=is_traceback,
        later_failures=later_failures,
        stopped=stopped,
        python=_python(folder, plan, name),
    )


def python_of_launch(folder: RunFolder, plan: Plan) -> tuple[str, str] | None:
    """Return the interpreter that `python` meant at the launch, and why it was chosen.

    Return None if the plan has an environment, or if the replicas run on other machines.
    """
    return None if plan.is_elsewhere or plan.environment else read_python(read_facts(folder))


def _python(folder: RunFolder, plan: Plan, name: ReplicaId) -> tuple[str, str] | None:
    """Return the Python of a replica, unless its command names an interpreter by its path."""
    command = next((" ".join(each.argv) for each in plan.replicas if each.id == name), "")
    names_one = re.search(r"/python[0-9.]*(?!\S)", command) or not re.search(r"\bpython", command)
    return None if names_one else python_of_launch(folder, plan)


def _moment(records: Sequence[Entry], state: RunState, cause: Cause) -> float | None:
    """Return when the failed replica ended, by its keeper's clock; if no exit was the cause, when the run ended."""
    ends = [
        (record.event.at_seconds, record)
        for record in records
        if isinstance(record.event, ReplicaExited) and record.event.attempt == cause.attempt
    ]
    decided = state.ending.at_seconds if state.ending else None
    own = [(at, record) for at, record in ends if _is_end_of(record, cause)]
    first = own if cause.exit.seen else [(at, record) for at, record in ends if at == decided]
    for at_seconds, record in first:
        since = record.since_boot - at_seconds  # an exit may be recorded much later; after a reboot, this is inexact
        return record.at - since if since >= 0 else record.at
    return records[-1].at if records else None


def _is_end_of(record: Entry, cause: Cause) -> bool:
    return isinstance(record.event, ReplicaExited) and record.event.replica == cause.replica


def _started(records: Sequence[Entry], cause: Cause, name: ReplicaId) -> float | None:
    return next(
        (
            record.at
            for record in records
            if isinstance(record.event, ReplicaStarted)
            and (record.event.replica, record.event.attempt) == (name, cause.attempt)
        ),
        None,
    )


def _excerpt(traces: Path, *, has_failed: bool) -> tuple[tuple[str, ...], bool]:
    """Return the shortened traceback at the end of a log, or else its last lines.

    An exception that a replica raised only because it was stopped is not shown; the lines before it are.
    """
    error: Error | None = read_error(traces / ERROR) if has_failed else None
    kept = find_raised(text_lines(error.traceback.encode(errors="replace"))) if error else []
    lines = text_lines(read_end(traces / LOG, TAIL_BYTES)[0])
    chain = kept[-1] if kept else closing_exception(lines)
    if chain and has_failed:
        return tuple(trim_traceback(chain)), True
    before = [line for line in lines[: chain.first] if not is_noise(line)] if chain else lines
    return tuple([line for line in before if line.strip()][-_LAST_LINES:]), False


def _others(state: RunState, cause: ReplicaId) -> tuple[tuple[LaterFailures, ...], tuple[ReplicaId, ...]]:
    """Return the replicas that failed later, grouped by message, and the replicas that were stopped."""
    said: dict[tuple[str, bool], list[ReplicaId]] = {}
    stopped: list[ReplicaId] = []
    for name, each in state.replicas.items():
        if name == cause or each.exit is None or each.exit.ok:
            continue
        if each.phase is Phase.FAILED:
            words = each.evidence.said if each.evidence else describe_exit(each.exit)
            said.setdefault((words, each.reason != "Consequence"), []).append(name)
        else:
            stopped.append(name)
    return tuple(LaterFailures(tuple(names), *how) for how, names in said.items()), tuple(stopped)
