"""The goodput of a run, computed from the files in its folder."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from drumline import runtime
from drumline.run.event import (
    AttemptPlaced,
    Event,
    Exit,
    FirstStepTaken,
    ReplicaExited,
    ReplicaStarted,
    RunAccepted,
    StepsResumed,
    StepsStalled,
)
from drumline.run.goodput import Goodput, RestartCost
from drumline.run.traces import STEP_FORMAT
from drumline.runtime.progress import write_report
from drumline.store.clock import Moment
from drumline.store.folder import RunFolder
from drumline.store.logs import MARK
from drumline.view.run import run_details
from scaffold.past_runs import NOON, WORKER, append, write_run

RESTARTED = "framework: plain\nrestart: 1"


def at(seconds: float) -> Moment:
    return Moment(NOON + seconds, 500 + seconds, "boot-a")


def history(*, until: float | None = 40) -> list[tuple[Moment, Event]]:
    """Return the events of a run that fails at 20 s, is placed again at 22 s, and ends at `until`."""
    events: list[tuple[Moment, Event]] = [
        (at(0), RunAccepted()),
        (at(0), AttemptPlaced(0, ("127.0.0.1:20000",))),
        (at(1), ReplicaStarted(WORKER, 0)),
        (at(20), ReplicaExited(WORKER, 0, 0, Exit(1), 520.0)),
        (at(22), AttemptPlaced(1, ("127.0.0.1:20000",))),
        (at(23), ReplicaStarted(WORKER, 1)),
    ]
    if until is not None:
        events.append((at(until), ReplicaExited(WORKER, 1, 0, Exit(0), 500.0 + until)))
    return events


def write_log(folder: RunFolder, attempt: int, lines: list[tuple[float, str]], *, exact: bool = True) -> Path:
    """Write a log with a mark for each line, which has the time of the line."""
    traces = folder.path / f"attempts/{attempt}/worker.0"
    traces.mkdir(parents=True, exist_ok=True)
    text, marks = b"", b""
    for seconds, said in lines:
        text += f"{said}\n".encode()
        marks += MARK.pack((NOON + seconds) * (1 if exact else -1), len(text))
    (traces / "log").write_bytes(text)
    (traces / "marks").write_bytes(marks)
    return traces


def steps(first: int, last: int, begin: float, every: float = 1.0) -> list[tuple[float, str]]:
    return [(begin + every * number, f"step {step} loss 0.5") for number, step in enumerate(range(first, last + 1))]


def goodput_of(folder: RunFolder, now: float = 100.0) -> Goodput:
    goodput = run_details(folder, at(now)).goodput
    assert goodput is not None
    return goodput


def test_steps_in_logs_divide_the_time_into_productive_and_recomputed(tmp_path: Path) -> None:
    folder = write_run(tmp_path, 4, history(), spec=RESTARTED)
    write_log(folder, 0, [(1.5, "loading"), *steps(1, 15, 4)])
    write_log(folder, 1, [(23.5, "loading"), *steps(11, 20, 26)])
    goodput = goodput_of(folder)
    assert (goodput.seconds, goodput.waiting_seconds, goodput.down_seconds) == (40, 2, 0)
    assert (goodput.starting_seconds, goodput.recomputed_seconds, goodput.productive_seconds) == (8, 4, 16 + 6)
    assert goodput.idle_seconds == 4  # after the last step
    assert (goodput.recomputed_steps, goodput.restarts) == (5, (RestartCost(1, 5, None, 0),))


def test_the_time_between_steps_is_evaluating_saving_or_idle_according_to_the_log(tmp_path: Path) -> None:
    folder = write_run(tmp_path, 4, history()[:3], spec=RESTARTED)
    write_log(folder, 0, [*steps(1, 10, 4), (19, "Evaluating on the test set"), *steps(11, 20, 23)])
    goodput = goodput_of(folder, 33.0)
    assert (goodput.evaluating_seconds, goodput.idle_seconds, goodput.productive_seconds) == (9, 0, 20)
    write_log(folder, 0, [*steps(1, 10, 4), (19, "saving the checkpoint"), *steps(11, 20, 23)])
    goodput = goodput_of(folder, 33.0)
    assert (goodput.saving_seconds, goodput.idle_seconds, goodput.productive_seconds) == (9, 0, 20)


def test_a_stall_that_was_recorded_in_a_log_too_long_to_be_read_is_not_productive(tmp_path: Path) -> None:
    events: list[tuple[Moment, Event]] = [
        *history()[:3],
        (at(170), StepsStalled(0, 41, 610.0, 60.0)),
        (at(210), StepsResumed(0, 42, 710.0)),
    ]
    folder = write_run(tmp_path, 4, events, spec=RESTARTED)
    talk = [(110, "x" * (2 << 20)), *steps(41, 41, 110), *steps(42, 50, 210)]
    write_log(folder, 0, [*steps(1, 40, 4), *talk])
    goodput = goodput_of(folder, 218.0)
    assert goodput.idle_seconds == 100
    assert goodput.productive_seconds == 218 - 4 - 100


def test_time_without_a_step_is_not_productive(tmp_path: Path) -> None:
    folder = write_run(tmp_path, 4, history()[:3], spec=RESTARTED)
    write_log(folder, 0, steps(1, 31, 4, every=0.05))
    goodput = goodput_of(folder, 245.5)
    assert goodput.productive_seconds == pytest.approx(1.5, abs=0.2)
    assert goodput.idle_seconds == pytest.approx(240, abs=0.2)
    parts = (goodput.productive_seconds, goodput.idle_seconds, goodput.starting_seconds, goodput.waiting_seconds)
    assert sum(part or 0.0 for part in parts) == pytest.approx(goodput.seconds)


def test_a_log_of_many_megabytes_is_read_only_as_far_as_needed(tmp_path: Path) -> None:
    folder = write_run(tmp_path, 4, history(), spec=RESTARTED)
    write_log(folder, 0, [*steps(1, 3, 4), (9, "x" * (3 << 20)), (10, "step 15 loss 0.5")])
    write_log(folder, 1, [*steps(11, 15, 26), (38, "x" * (3 << 20)), (39, "step 20 loss 0.5")])
    assert goodput_of(folder).restarts == (RestartCost(1, 5, None, 0),)
    assert goodput_of(folder).recomputed_seconds == 4
    write_log(folder, 1, [*steps(11, 12, 26), (38, "x" * (3 << 20)), (39, "step 20 loss 0.5")])
    assert goodput_of(folder).restarts == (RestartCost(1, 5, None, 0),)
    assert goodput_of(folder).recomputed_seconds is None


def test_with_unknown_times_of_steps_the_productive_time_is_unknown(tmp_path: Path) -> None:
    folder = write_run(tmp_path, 4, history(), spec=RESTARTED)
    write_log(folder, 0, steps(1, 15, 4), exact=False)
    assert goodput_of(folder).productive_seconds is None


def test_the_time_of_a_running_run_is_accounted_for_up_to_now(tmp_path: Path) -> None:
    folder = write_run(tmp_path, 4, history(until=None), spec=RESTARTED)
    write_log(folder, 0, steps(1, 15, 4))
    write_log(folder, 1, steps(11, 13, 26))
    goodput = goodput_of(folder, 60.0)
    assert (goodput.seconds, goodput.recomputed_seconds, goodput.productive_seconds) == (60, 34, 16)
    assert (goodput.recomputed_steps, goodput.restarts) == (3, (RestartCost(1, 5, None, 0),))


def test_the_reports_of_a_short_incarnation_have_its_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_run(tmp_path, 4, history()[:3])
    traces = write_log(folder, 0, [(2, "nothing that counts")])
    monkeypatch.setenv(runtime.TRACE_DIR, str(traces))
    for step in range(1, 4):
        write_report(step, {}, now=lambda step=step: NOON + 4 + step)  # type: ignore[misc]
    goodput = goodput_of(folder, 30.0)
    assert (goodput.starting_seconds, goodput.productive_seconds) == (5, 25)
    write_report(90, {}, now=lambda: NOON + 94)
    assert goodput_of(folder, 95.0).productive_seconds is None  # the report does not have its first step any more
    append(folder, [(at(5.5), FirstStepTaken(0, WORKER, 1, 505.0))])
    goodput = goodput_of(folder, 95.0)
    assert (goodput.starting_seconds, goodput.productive_seconds) == (5, 90)


def test_the_recorded_first_step_is_used_if_there_are_no_other_steps(tmp_path: Path) -> None:
    noticed = (at(8), FirstStepTaken(0, WORKER, None, 507.0))
    again = (at(31), FirstStepTaken(1, WORKER, 5, 530.0))
    begun = history(until=None)
    folder = write_run(tmp_path, 4, [*begun[:3], noticed, *begun[3:]], spec=RESTARTED)
    goodput = goodput_of(folder, 50.0)
    assert (goodput.starting_seconds, goodput.productive_seconds, goodput.restarts) == (
        7 + 28,
        13,
        (RestartCost(1, None, None, 0),),
    )
    append(folder, [again])
    goodput = goodput_of(folder, 50.0)
    assert (goodput.starting_seconds, goodput.productive_seconds, goodput.restarts) == (
        7 + 8,
        None,
        (RestartCost(1, None, None, 0),),
    )


def test_a_run_that_never_had_a_supervisor_has_no_goodput(tmp_path: Path) -> None:
    assert run_details(write_run(tmp_path, 4), at(1)).goodput is None


def note_steps(folder: RunFolder, attempt: int, noted: Sequence[tuple[float, int]]) -> None:
    """Write the file of steps beside a log, as a supervisor does for reported steps."""
    traces = folder.path / f"attempts/{attempt}/worker.0"
    traces.mkdir(parents=True, exist_ok=True)
    (traces / "steps").write_bytes(b"".join(struct.pack(STEP_FORMAT, NOON + at, -1, step) for at, step in noted))


def test_the_time_between_reported_steps_is_evaluating_saving_or_idle_according_to_the_log(tmp_path: Path) -> None:
    folder = write_run(tmp_path, 4, history()[:3], spec=RESTARTED)
    write_log(folder, 0, [(3, "training"), (16, "validation begins")])
    note_steps(
        folder,
        0,
        [(4 + number, 10 * number) for number in range(1, 11)] + [(24 + n, 100 + 10 * n) for n in range(1, 5)],
    )
    goodput = goodput_of(folder, 29.0)
    assert (goodput.starting_seconds, goodput.evaluating_seconds, goodput.idle_seconds) == (5, 10, 0)
    assert goodput.productive_seconds == 14
    goodput = goodput_of(folder, 69.0)
    assert (goodput.evaluating_seconds, goodput.idle_seconds, goodput.productive_seconds) == (10, 40, 14)


def test_the_time_before_several_steps_that_were_seen_at_once_is_productive(tmp_path: Path) -> None:
    folder = write_run(tmp_path, 4, history()[:3], spec=RESTARTED)
    note_steps(folder, 0, [(10, 10), (20, 20), (140, 140), (260, 260), (270, 270)])
    goodput = goodput_of(folder, 275.0)
    assert (goodput.idle_seconds, goodput.productive_seconds) == (0, 265)


def test_reported_steps_that_a_restart_has_lost_are_recomputed_when_they_are_reported_again(tmp_path: Path) -> None:
    folder = write_run(tmp_path, 4, history(), spec=RESTARTED)
    note_steps(folder, 0, [(4 + number, number) for number in range(1, 16)])
    note_steps(folder, 1, [(25 + number, 10 + number) for number in range(1, 15)])
    goodput = goodput_of(folder)
    assert goodput.restarts == (RestartCost(1, 5, None, 0),)
    assert (goodput.recomputed_seconds, goodput.recomputed_steps) == (4, 5)


def test_the_validation_of_keras_counts_from_the_last_step_of_its_epoch(tmp_path: Path) -> None:
    folder = write_run(tmp_path, 4, history()[:3], spec=RESTARTED)
    traces = folder.path / "attempts/0/worker.0"
    traces.mkdir(parents=True)
    text, marks = b"", b""

    def draw(seconds: float, piece: str) -> None:
        nonlocal text, marks
        text += piece.encode()
        marks += MARK.pack(NOON + seconds, len(text))

    for epoch, begin in ((1, 4), (2, 24)):
        draw(begin, f"Epoch {epoch}/2\n")
        for step in range(1, 11):
            # The bar of a step is written at once; its line ends only when the next bar is written.
            draw(begin + step, "\b" * 40 + f"\n\x1b[1m{step}/10\x1b[0m ━━━━━━━━━━ 0s 1s/step - loss: 0.5")
        draw(begin + 20, "\b" * 40 + "\n10/10 ━━━━━━━━━━ 20s 1s/step - loss: 0.5 - val_loss: 0.4\n")
    (traces / "log").write_bytes(text)
    (traces / "marks").write_bytes(marks)
    goodput = goodput_of(folder, 44.0)
    assert (goodput.starting_seconds, goodput.evaluating_seconds, goodput.idle_seconds) == (5, 19, 0)
    assert goodput.productive_seconds == 44 - 5 - 19
