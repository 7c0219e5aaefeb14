"""Compute how the time of a run was spent, from its journal and from the steps in logs, reports and files."""

from __future__ import annotations

import math
import re
import struct
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from drumline.plan.types import ReplicaId
from drumline.record import Record
from drumline.run.entry import Entry
from drumline.run.event import Event, FirstStepTaken, ReplicaStarted, StepsResumed, StepsStalled
from drumline.run.goodput import (
    Goodput,
    Key,
    Lapse,
    Point,
    Steps,
    TimedEvent,
    Timeline,
    Uptime,
    account_time,
    find_lapses,
    make_timeline,
)
from drumline.run.progress import read_progress
from drumline.run.steps import Counted, StepReader, usual_stride
from drumline.run.traces import LOG, REPORT, STEP_FORMAT, STEPS, trace_dir
from drumline.runtime.private import open_regular
from drumline.runtime.progress import RECENT_SECONDS, read_report
from drumline.store.clock import Moment
from drumline.store.folder import RunFolder
from drumline.store.logs import MARK, read_end, read_marks, times_of, written_by
from drumline.store.summary import History, moment_of
from drumline.view.steps import step_sources

_PIECE_BYTES = 1 << 16
_MOST_BYTES = 1 << 20  # bytes that are read of a log; if the first new step is later, it is not known
_MOST_MARKS = _MOST_BYTES // MARK.size
_TAIL_BYTES = 1 << 14
_LAPSES_BYTES = 1 << 18  # bytes of a log in which lapses are searched; more would take too long
_FEW = 20  # number of steps that show the stride
_LATEST = 1e11  # a time beyond this is damage
_STEP = struct.Struct(STEP_FORMAT)
_EVALUATES = re.compile(rb"(?i)\b(?:val|valid|validat\w*|eval|evaluat\w*|test|testing)(?:\b|_)")
_SAVES = re.compile(rb"(?i)\b(?:sav(?:e|ed|ing)|checkpoint\w*|ckpt\w*|export\w*)(?:\b|_)")


class _LogTraces(Record):
    """The folder and the start of one incarnation of the replica that counts steps."""

    folder: Path
    began_at: float  # UTC, seconds
    began: float  # seconds since the start of the run

    def point(self, counted: Counted, at: float) -> Point:
        """Return the point of a step that was taken at this time (UTC, seconds)."""
        return Point(self.began + max(0.0, at - self.began_at), counted.step, counted.epoch, counted.steps)


def read_goodput(folder: RunFolder, history: History, now: Moment) -> Goodput | None:
    """Return how the time of a run was spent so far; None for a run that has never had a supervisor."""
    if not history.records:
        return None
    events = _events(history.records)
    end = events[-1].at + now.seconds_since(moment_of(history.records[-1]))
    timeline = make_timeline(history.plan, events, end)
    noticed = _noticed(events)
    steps: dict[Key, Steps] = {}
    for replica in step_sources(history.plan):
        steps = _steps_of(folder, replica, timeline, history.records, events, noticed)
        if steps:
            break
    for key in noticed.keys() - steps.keys():  # uptimes of which only the first step is known
        first = noticed[key].replace(step=None)
        steps[key] = Steps(first, first, is_known=False)
    for key, lapse in _stalls(events):
        own = steps.get(key)
        if own and all(each.end <= lapse.start or each.start >= lapse.end for each in own.lapses):
            steps[key] = own.replace(lapses=(*own.lapses, lapse))
    return account_time(timeline, steps)


def _events(records: Sequence[Entry]) -> list[TimedEvent]:
    """Return the events with their times since the start of the run, which never decrease."""
    passed, found = 0.0, []
    for before, record in zip((records[0], *records[:-1]), records, strict=True):
        passed += moment_of(record).seconds_since(moment_of(before))
        found.append(TimedEvent(passed, record.since_boot, record.event, record.decisions))
    return found


def _stalls(events: Sequence[TimedEvent]) -> Iterator[tuple[Key, Lapse]]:
    """Yield the recorded stalls that are over, each with the attempt."""
    stalled: StepsStalled | None = None
    for each in events:
        event = each.event
        if isinstance(event, StepsStalled):
            stalled = event
        elif isinstance(event, StepsResumed) and stalled and stalled.attempt == event.attempt:
            end = each.at - max(0.0, each.since_boot - event.at_seconds)
            yield (event.attempt, 0), Lapse("idle", end - (event.at_seconds - stalled.at_seconds), end)


def _noticed(events: Sequence[TimedEvent]) -> dict[Key, Point]:
    """Return the first step of each attempt that the supervisor has recorded."""
    return {
        (each.event.attempt, 0): Point(each.at - max(0.0, each.since_boot - each.event.at_seconds), each.event.step)
        for each in events
        if isinstance(each.event, FirstStepTaken)
    }


def _steps_of(
    folder: RunFolder,
    replica: ReplicaId,
    timeline: Timeline,
    records: Sequence[Entry],
    events: Sequence[TimedEvent],
    noticed: Mapping[Key, Point],
) -> dict[Key, Steps]:
    """Return the steps of one replica in each uptime."""
    found: dict[Key, Steps] = {}
    reached: Point | None = None
    for uptime in timeline.uptimes:
        traces = _traces_of(folder, replica, uptime, records, events)
        first = noticed.get(uptime.key)
        steps = traces and (
            _read_log(traces, reached, first)
            or _read_noted(traces, reached, first)
            or _read_report(traces, reached, first)
        )
        if steps:
            found[uptime.key] = steps
            reached = max((steps.last, reached or steps.last), key=lambda point: point.order)
    return found


def _traces_of(
    folder: RunFolder, replica: ReplicaId, uptime: Uptime, records: Sequence[Entry], events: Sequence[TimedEvent]
) -> _LogTraces | None:
    own = (replica, *uptime.key)

    def is_start(event: Event) -> bool:
        return isinstance(event, ReplicaStarted) and (event.replica, event.attempt, event.incarnation) == own

    for record, happening in zip(records, events, strict=True):
        if is_start(record.event):
            return _LogTraces(folder.path / trace_dir(*own), record.at, happening.at)
    return None


def _read_log(traces: _LogTraces, reached: Point | None, noticed: Point | None) -> Steps | None:
    """Return the steps in a log; None if it has none, or if the time of the first one is not known.

    `reached` is the last step of earlier uptimes, `noticed` the recorded first step of this one.
    """
    reader, seen, text = StepReader(), list[Counted](), bytearray()
    regained: Counted | None = None
    is_whole = False
    try:
        with open(traces.folder / LOG, "rb", opener=open_regular) as log:
            while log.tell() < _MOST_BYTES and not (regained and len(seen) >= _FEW and log.tell() >= _LAPSES_BYTES):
                data = log.read(_PIECE_BYTES)
                if is_whole := not data:
                    break
                text += data
                for counted in reader.read(data):
                    seen.append(counted)
                    if regained is None and (reached is None or counted.order >= reached.order):
                        regained = counted
    except OSError:
        return None
    if not seen:
        return None
    lapses, usual = _read_lapses(traces, seen, bytes(text))
    last = seen[-1] if is_whole else _last(traces.folder, seen[-1])
    first_at, regained_at = (each and written_by(traces.folder, each.end - 1) for each in (seen[0], regained))
    if first_at is not None:
        first = traces.point(seen[0], first_at)
    elif noticed:
        first = Point(noticed.at, seen[0].step, seen[0].epoch, seen[0].steps)
    else:
        return None  # the time of the first step is not known
    last_at = written_by(traces.folder, last.end - 1, exactly=False)
    return Steps(
        first=first,
        last=traces.point(last, traces.began_at + first.at - traces.began if last_at is None else last_at),
        regained=traces.point(regained, regained_at) if regained and regained_at is not None else None,
        is_known=regained_at is not None if regained else is_whole,
        stride=usual_stride(seen),
        lapses=lapses,
        usual_seconds=usual,
        then=_kind_of(bytes(text[last.end :])),
    )


def _read_lapses(traces: _LogTraces, seen: Sequence[Counted], text: bytes) -> tuple[tuple[Lapse, ...], float | None]:
    """Return the lapses in a log, by its marks and its text, and the usual time of a step."""
    # The offset of the last byte of a piece: a bar is written before the byte that ends it.
    times = times_of(traces.folder, (each.end - 1 for each in seen), most=_MOST_MARKS)
    dated = [(each.end, traces.point(each, at)) for each, at in zip(seen, times, strict=True) if at is not None]

    def kind_before(number: int) -> str:
        return _kind_of(text[dated[number - 1][0] : dated[number][0]])

    return find_lapses([point for _, point in dated], kind_before)


def _kind_of(text: bytes) -> str:
    """Return the kind of a lapse in which this text was printed."""
    return "evaluating" if _EVALUATES.search(text) else "saving" if _SAVES.search(text) else "idle"


def _last(folder: Path, before: Counted) -> Counted:
    """Return the last step of a log that was not read completely."""
    tail, start = read_end(folder / LOG, _TAIL_BYTES)
    progress = read_progress(tail, is_cut=start > 0)
    if progress.step is None and progress.epoch is None:
        return before
    found = Counted(start + len(tail) - 1, progress.step, progress.epoch, progress.steps)
    return found if found.order > before.order else before


def _read_noted(traces: _LogTraces, reached: Point | None, noticed: Point | None) -> Steps | None:
    """Return the steps that were reported or written for TensorBoard, with the times that the supervisor recorded."""
    points = _read_points(traces)
    if noticed and noticed.step is not None and points and noticed.at <= points[0].at:
        points.insert(0, noticed)
    if not points:
        return None
    marks, _ = read_marks(traces.folder, _MOST_MARKS)

    def kind_before(number: int) -> str:
        return _kind_of(_written_between(traces, marks, points[number - 1].at, points[number].at))

    lapses, usual = find_lapses(points, kind_before)
    return Steps(
        first=points[0],
        last=points[-1],
        regained=next((point for point in points if reached is None or point.order >= reached.order), None),
        lapses=lapses,
        usual_seconds=usual,
        then=_kind_of(_written_between(traces, marks, points[-1].at, math.inf)),
    )


def _read_points(traces: _LogTraces) -> list[Point]:
    """Return the recorded steps with increasing times; of very many, only the last ones."""
    data, _ = read_end(traces.folder / STEPS, _MOST_BYTES // _STEP.size * _STEP.size)
    points: list[Point] = []
    for at, epoch, step in _STEP.iter_unpack(data[: len(data) - len(data) % _STEP.size]):
        if abs(at) < _LATEST and max(epoch, step) >= 0:
            point = traces.point(Counted(0, step if step >= 0 else None, epoch if epoch >= 0 else None), at)
            if not points or point.at >= points[-1].at:
                points.append(point)
    return points


def _written_between(traces: _LogTraces, marks: Sequence[tuple[float, int]], start: float, end: float) -> bytes:
    """Return the output in a log between two times, by its marks; of much output only the end."""
    times = [traces.began + max(0.0, abs(at) - traces.began_at) for at, _ in marks]
    first, last = bisect_right(times, start), bisect_right(times, end)
    begin = marks[first - 1][1] if first else 0
    if last <= first:
        return b""
    try:
        with open(traces.folder / LOG, "rb", opener=open_regular) as log:
            log.seek(max(begin, marks[last - 1][1] - _PIECE_BYTES))
            return log.read(marks[last - 1][1] - log.tell())
    except OSError:
        return b""


def _read_report(traces: _LogTraces, reached: Point | None, noticed: Point | None) -> Steps | None:
    """Return the steps of a report; None if the first step is neither in the report nor recorded."""
    report = read_report(traces.folder / REPORT)
    if report is None or report.since_step is None:
        return None
    if report.at_seconds - report.since_seconds <= RECENT_SECONDS:
        first = Point(traces.began + max(0.0, report.since_seconds - traces.began_at), report.since_step)
    elif noticed and noticed.step is not None:
        first = noticed
    else:
        return None
    last = Point(traces.began + max(0.0, report.at_seconds - traces.began_at), report.step)
    behind = reached is not None and first.order <= reached.order
    return Steps(first, last, is_known=not behind or last.order < (reached or last).order)
