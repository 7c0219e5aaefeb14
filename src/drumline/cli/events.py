"""``drumline events``: the journal of a run as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import assert_never

import click

from drumline.cli.find import find_target
from drumline.cli.terminal import print_json, print_line
from drumline.cli.text import FORM_OPTION, utc
from drumline.errors import EngineError
from drumline.plan.types import TENSORBOARD, Plan, ReplicaId
from drumline.record import Record
from drumline.run import event as events
from drumline.run.codec import event_to_data
from drumline.run.decision import RestartChosen
from drumline.run.describe import describe_restart, describe_revival
from drumline.run.entry import Entry
from drumline.run.event import Event
from drumline.run.failure import describe_exit
from drumline.run.fold import fold, new_run
from drumline.run.stall import describe_stall
from drumline.store.journal import read_journal
from drumline.words import count, decimal_size, format_duration


@click.command()
@click.argument("target", metavar="ID")
@FORM_OPTION
def command(target: str, form: str) -> None:
    """Show what happened to the run ID, one line per event, with times in UTC.

    ID is a run such as 4, or a replica such as 4.worker.1 or 4.chief.
    """
    folder, meant = find_target(target)
    plan = folder.plan()
    replicas = meant.replicas(plan)
    try:
        shown = list(_with_decisions(plan, read_journal(folder.journal_file, plan)))
    except OSError as error:
        raise EngineError(f"the journal of run {folder.id} cannot be read: {error.strerror}") from None
    if meant.role is not None:
        shown = [each for each in shown if _replica(each.record.event) in replicas]
    if form == "json":
        print_json([_data(folder.id, each.record, each.follows) for each in shown])
        return
    for each in shown:
        at, event = utc(each.record.at), each.record.event
        print_line(f"[{at}] {_subject(folder.id, event)} {_words(event, is_partial=each.is_partial)}")
        for sentence in each.follows:
            print_line(f"[{at}] {folder.id}: {sentence}")


class _Shown(Record):
    """An entry of the journal, and the sentences about its decisions.

    `is_partial`: a restart of only some replicas was delayed before this entry.
    """

    record: Entry
    follows: tuple[str, ...]
    is_partial: bool


def _with_decisions(plan: Plan, records: Iterable[Entry]) -> Iterator[_Shown]:
    """Yield every entry with sentences about the restarts and warnings that followed from it."""
    state = new_run(plan)
    for record in records:
        before = state
        state = fold(before, record.event, *record.decisions)
        restarts = [each for each in record.decisions if isinstance(each, RestartChosen)]
        follows = tuple(describe_restart(each, state.verdicts[-1]) for each in restarts if state.verdicts)
        follows += tuple(describe_revival(revival) for revival in state.revivals[len(before.revivals) :])
        if isinstance(record.event, events.ReplicaExited | events.ReplicaWaits | events.TimerFired):
            follows += state.warnings[len(before.warnings) :]
        yield _Shown(record, follows, before.holding)


def _words(event: Event, *, is_partial: bool) -> str:
    """Return the description of an event, to be shown after the id of its run or replica: `was accepted`.

    `is_partial`: only some replicas restart, in the same attempt.
    """
    match event:
        case events.RunAccepted():
            return "was accepted"
        case events.AttemptPlaced():
            places = (
                f"{event.addresses[0]} to {event.addresses[-1]}" if len(event.addresses) > 1 else event.addresses[0]
            )
            return f"was placed for attempt {event.attempt}: {count(len(event.addresses), 'replica')} at {places}"
        case events.AttemptDelayed():
            return event.message
        case events.RoomFound():
            return f"got its resources for attempt {event.attempt}"
        case events.ReplicaStarted():
            started = "started again" if event.incarnation and not event.replica.is_helper else "started"
            started = started if event.pid is None else f"{started} as process {event.pid}"
            return f"{started}, {event.note}" if event.note else started
        case events.ReplicaWaits(is_fatal=True):
            return f"cannot start: {event.message}"
        case events.ReplicaWaits():
            return f"waits: {event.message}" if event.message else "waits for its start"
        case events.ReplicaExited():
            return f"exited: {describe_exit(event.exit)}"
        case events.FirstStepTaken():
            step = "its first step" if event.step is None else f"step {event.step}, the first"
            return f"took {step} of attempt {event.attempt}, as {event.replica} reports"
        case events.StopRequested(preempted=True):
            return "was preempted: its supervisor was asked to exit"
        case events.GangHung():
            return f"hangs: {event.message}"
        case events.RendezvousFailed():
            return f"did not form a rendezvous: {event.message}"
        case events.StacksTaken():
            return f"saved its stack traces: {event.message}" if event.message else "saved its stack traces"
        case events.StepsStalled():
            return f"is stalled: {describe_stall(event)}"
        case events.StepsResumed():
            return "takes steps again" if event.step is None else f"takes steps again: step {event.step}"
        case events.CauseNamed(is_correction=True):
            return f"fails for another cause than named before: {event.message}"
        case events.CauseNamed():
            return f"fails: {event.message}"
        case events.StopRequested():
            return "was asked to stop at once" if event.force else "was asked to stop"
        case events.ResumeRequested():
            return "was resumed"
        case events.TimerFired(timer="old"):
            return f"has run long enough that a failure of attempt {event.attempt} does not count as early"
        case events.TimerFired() if event.timer.startswith("hold "):
            return "waited long enough: the failed replicas restart"
        case events.TimerFired():
            return f"waited long enough: {event.timer} of attempt {event.attempt}"
        case events.DelayChosen():
            return f"waits {format_duration(event.seconds)}" + (
                "" if is_partial else f" before attempt {event.attempt}"
            )
        case events.EngineFailed():
            return f"could not continue: {event.message}"
        case events.EngineWarned():
            return f"warning: {event.message}"
        case events.ProjectCarried():
            where = f"on {count(event.hosts, 'host')}" if event.hosts else "where it runs"
            return f"has its project {where}: {decimal_size(event.size_bytes)}, {count(event.files, 'file')}"
        case events.SummariesFound():
            return "has written summaries"
        case events.TensorBoardServed():
            return f"answers at {event.address}"
        case events.SupervisorReturned(number=0):
            return "has a supervisor again"
        case events.SupervisorReturned():
            return f"has a supervisor again, restarted automatically, {event.number} of {event.most}"
        case _:
            assert_never(event)


def _data(run: str, record: Entry, follows: tuple[str, ...]) -> dict[str, object]:
    data = {"at": utc(record.at), "id": _subject(run, record.event), **event_to_data(record.event)}
    if follows:
        data["follows"] = list(follows)
    if record.decisions:
        data["decisions"] = [event_to_data(decision) for decision in record.decisions]
    return data


def _subject(run: str, event: Event) -> str:
    """Return the id that an event is about: that of its replica, or of the run."""
    replica = _replica(event)
    return f"{run}.{replica}" if replica else run


def _replica(event: Event) -> ReplicaId | None:
    """Return the replica that an event is about; None for an event about the run."""
    if isinstance(event, events.TensorBoardServed):
        return TENSORBOARD
    of_replica = events.ReplicaStarted | events.ReplicaWaits | events.ReplicaExited
    return event.replica if isinstance(event, of_replica) else None
