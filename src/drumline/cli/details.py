"""The page of one run: its state, its origin and its replicas."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from signal import Signals

from drumline.cli.card import card_data, spell_card
from drumline.cli.find import refresh_copy
from drumline.cli.frame import Frame, terminal_columns
from drumline.cli.goodput import describe_goodput, goodput_data
from drumline.cli.output import engine_of, output_of
from drumline.cli.progress import epoch_cell, eta_cell, progress_data, spell_loss, step_cell
from drumline.cli.run_row import note, run_data
from drumline.cli.terminal import json_lines
from drumline.cli.text import rounded, table_of, utc
from drumline.engine.abilities import Describing
from drumline.record import to_dict
from drumline.run.describe import describe_revival
from drumline.run.event import Exit
from drumline.run.id import parse_target
from drumline.run.stall import describe_stall
from drumline.spec.quantity import format_bytes
from drumline.store.clock import Moment, read_clock
from drumline.store.folder import find_folder
from drumline.view.run import ReplicaRow, RunDetails, run_details
from drumline.words import clip, format_duration, listed

_LONGEST = 200  # characters of an exception


def refresh_run(home: Path, text: str) -> None:
    """Refresh the copy of a run that is supervised elsewhere."""
    refresh_copy(find_folder(home, parse_target(text).run))


def run_frame(home: Path, text: str, form: str) -> Frame:
    """Return the page of the run, or of the replicas, that an id names."""
    target = parse_target(text)
    folder = find_folder(home, target.run)
    now = read_clock()
    details = run_details(folder, now)
    meant = set(target.replicas(details.plan))
    if target.role is not None:
        details = details.replace(replicas=tuple(row for row in details.replicas if row.id in meant))
    is_last = details.run.summary.is_final
    if form == "json":
        return Frame(json_lines(_data(details)), is_last=is_last, is_data=True)
    lines = [*_head(details, now), "", *_replicas(details)]
    if details.card and target.role is None:
        lines = [*spell_card(details.run.summary.id, details.card, terminal_columns()), "", *lines]
    return Frame(lines, is_last=is_last)


def _head(details: RunDetails, now: Moment) -> list[str]:
    """Return the lines above the table of replicas, one for each known fact about the run."""
    run = details.run.summary
    name = run.project if run.name == run.project else f"{run.project}, {run.name}"
    parameters = " ".join(f"{key}={quote(value)}" for key, value in details.plan.parameters.items())
    state = run.phase if not (text := note(details.run)) else f"{run.phase}: {text}"
    duration = details.run.duration_seconds
    facts = {
        "Run": f"{run.id} ({name}), {run.framework} on {run.engine}",
        "State": state,
        "Started": f"{utc(run.started_at)}, {format_duration(now.at - run.started_at, parts=1)} ago"
        if run.started_at
        else "",
        "Duration": "" if duration is None else format_duration(duration),
        "Stalled": describe_stall(details.run.stalled) if details.run.stalled else "",
        "Goodput": describe_goodput(details.goodput),
        "Parameters": parameters,
        "Python": str(details.plan.environment) if details.plan.environment else "",
        "Directory": run.directory,
        "Revision": _revision(details),
        "Output": _output(details),
        "TensorBoard": _tensorboard(details),
        "Earlier": listed([f"attempt {cause.attempt}: {cause.message}" for cause in details.causes]),
        "Returned": "; ".join(describe_revival(revival) for revival in details.revivals),
        "Warning": listed(details.warnings),
    }
    return [f"{f'{word}:':<11} {text}" for word, text in facts.items() if text]


def _output(details: RunDetails) -> str:
    """Return where a run writes its output: a folder of this machine, or the description of its engine."""
    if details.plan.is_elsewhere:
        engine = engine_of(details)
        if isinstance(engine, Describing):
            return engine.describe_output(output_of(details))
    return details.output_dir


def _tensorboard(details: RunDetails) -> str:
    """Return the address of TensorBoard, or the command that shows the run again."""
    board = details.tensorboard
    if board is None:
        return ""
    if not board.phase.is_final:
        return board.address or "starting"
    return f"ended; `drumline tensorboard {details.run.summary.id}` shows the run again"


def _revision(details: RunDetails) -> str:
    if not details.revision:
        return ""
    return f"{details.revision}, with changes" if details.is_dirty else details.revision


def _replicas(details: RunDetails) -> list[str]:
    """Return the table of replicas, without empty columns."""
    run, rows = details.run.summary, details.replicas
    day = (utc(run.started_at) or "")[:11]
    columns = {
        "REPLICA": [_name(run.id, row) for row in rows],
        "STATE": [row.phase.value for row in rows],
        "HOST": [row.host for row in rows],
        "STARTED": [(utc(row.started_at) or "-").removeprefix(day) for row in rows],
        "DURATION": ["-" if row.duration_seconds is None else format_duration(row.duration_seconds) for row in rows],
        "EPOCH": [epoch_cell(row.progress) for row in rows],
        "STEP": [step_cell(row.progress) for row in rows],
        "LOSS": [spell_loss(row.progress) for row in rows],
        "ETA": [eta_cell(row.progress) for row in rows],
        "EXIT": [_exit(row.exit) for row in rows],
        "REASON": [row.reason for row in rows],
        "CPUS": ["" if row.resources.cpus is None else f"{row.resources.cpus:g}" for row in rows],
        "MEMORY": [format_bytes(row.resources.memory_bytes) if row.resources.memory_bytes else "" for row in rows],
        "GPUS": ["" if row.resources.gpus is None else str(row.resources.gpus) for row in rows],
        "MESSAGE": [_message(row) for row in rows],
    }
    return table_of({heading: cells for heading, cells in columns.items() if any(cells)})


def _name(run: str, row: ReplicaRow) -> str:
    """Return the id of a replica, marked if it acts as chief."""
    return f"{run}.{row.id} (chief)" if row.is_chief and row.id.role != "chief" else f"{run}.{row.id}"


def _exit(exit_: Exit | None) -> str:
    if exit_ is None:
        return ""
    if exit_.signal is not None:
        known = exit_.signal in tuple(Signals)
        return f"{exit_.signal} ({Signals(exit_.signal).name.removeprefix('SIG')})" if known else str(exit_.signal)
    return "?" if exit_.code is None else str(exit_.code)


def _message(row: ReplicaRow) -> str:
    """Return the message of an exit, or the type and first line of the exception."""
    if row.error is None or (row.exit and row.exit.message):
        return row.exit.message if row.exit else row.waits
    first = row.error.message.strip().partition("\n")[0]
    return clip(f"{row.error.type}: {first}" if first else row.error.type, _LONGEST)


def _data(details: RunDetails) -> dict[str, object]:
    run = details.run.summary.id
    return {
        "cause": card_data(run, details.card),
        **run_data(details.run, details.chief_progress),
        "environment": details.plan.environment and to_dict(details.plan.environment),
        "python": details.python and {"path": details.python[0], "reason": details.python[1]},
        "output_dir": details.output_dir,
        "folder": details.folder,
        "revision": details.revision,
        "dirty": details.is_dirty,
        "causes": [
            {
                "attempt": cause.attempt,
                "replica": f"{run}.{cause.replica}" if cause.replica else None,
                "reason": cause.reason,
                "message": cause.message,
            }
            for cause in details.causes
        ],
        "goodput": goodput_data(details.goodput),
        "revivals": [
            {
                "replicas": [f"{run}.{name}" for name in revival.replicas],
                "attempt": revival.cause.attempt,
                "reason": revival.cause.reason,
                "message": describe_revival(revival),
            }
            for revival in details.revivals
        ],
        "warnings": list(details.warnings),
        "tensorboard": details.tensorboard
        and {"state": details.tensorboard.phase.value, "address": details.tensorboard.address or None},
        "replicas": [_replica_data(run, row) for row in details.replicas],
    }


def _replica_data(run: str, row: ReplicaRow) -> dict[str, object]:
    return {
        "id": f"{run}.{row.id}",
        "state": row.phase.value,
        "is_chief": row.is_chief,
        "host": row.host or None,
        "attempt": row.attempt,
        "incarnation": row.incarnation,
        "started_at": utc(row.started_at),
        "duration_seconds": rounded(row.duration_seconds),
        "exit_code": row.exit.code if row.exit else None,
        "signal": row.exit.signal if row.exit else None,
        "reason": row.reason,
        "message": row.exit.message if row.exit else row.waits,
        "error": row.error and {"type": row.error.type, "message": row.error.message, "at": utc(row.error.at_seconds)},
        "progress": progress_data(row.progress),
        "behind": row.progress.is_behind,
        "resources": {
            "cpus": row.resources.cpus,
            "memory_bytes": row.resources.memory_bytes,
            "gpus": row.resources.gpus,
        },
    }
