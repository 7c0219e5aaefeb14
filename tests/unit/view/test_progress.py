"""The progress of replicas, read from the files in their folders, and the stragglers among them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from drumline import runtime
from drumline.plan.types import ReplicaId
from drumline.run.pace import Pace
from drumline.run.progress import Progress
from drumline.runtime.progress import write_report
from drumline.store.logs import LONGEST_BAR, MARK, read_tail
from drumline.view.progress import TAIL_BYTES, read_replica_progress
from drumline.view.replica_progress import ReplicaProgress
from drumline.view.stragglers import find_stragglers
from scaffold.past_runs import NOON

BAR = "\r%3d/999 ━━━━━━━━━━ 3s 10ms/step - loss: 0.%04d\b\b\b\b"


def write_log(folder: Path, text: str, at: float = NOON) -> None:
    (folder / "log").write_bytes(text.encode())
    os.utime(folder / "log", (at, at))


def test_the_progress_of_an_incarnation_without_a_log_is_unknown(tmp_path: Path) -> None:
    assert read_replica_progress(tmp_path, NOON) == ReplicaProgress()
    write_log(tmp_path, "loading data\n")
    assert read_replica_progress(tmp_path, NOON) == ReplicaProgress()


def steps_of(replica_progress: ReplicaProgress) -> tuple[int | None, ...]:
    found = replica_progress.progress
    return found.epoch, found.epochs, found.step, found.steps


def test_a_progress_bar_gives_the_remaining_time_only_while_it_is_recent(tmp_path: Path) -> None:
    write_log(tmp_path, "Epoch 2/3\n32/100 ━━━━ 3s 500ms/step - loss: 0.31\n")
    replica_progress = read_replica_progress(tmp_path, NOON + 1)
    assert replica_progress.progress.replace(rate=None, is_latest=False) == Progress(2, 3, 32, 100, 0.31)
    assert (replica_progress.at, replica_progress.steps_eta_seconds, replica_progress.eta_seconds) == (NOON, 33.0, 83.0)
    for later in (read_replica_progress(tmp_path, NOON + 3600), read_replica_progress(tmp_path, NOON + 1, runs=False)):
        assert later.progress == replica_progress.progress
        assert (later.steps_eta_seconds, later.eta_seconds) == (None, None)


def test_the_epoch_of_a_bar_with_very_many_states_is_found(tmp_path: Path) -> None:
    states = "".join(BAR % (step, step) for step in range(1, 999))
    write_log(tmp_path, "x" * TAIL_BYTES + f"\nEpoch 1/9\n{states}\nEpoch 2/9\n{states}")
    assert len(states.encode()) > 2 * TAIL_BYTES
    assert steps_of(read_replica_progress(tmp_path, NOON)) == (2, 9, 998, 999)


def test_the_epoch_above_a_completed_bar_does_not_apply_to_the_evaluation_below_it(tmp_path: Path) -> None:
    states = "".join(BAR % (step, step) for step in range(1, 1000))
    for end in ("\n", "\r\n"):
        for more in range(TAIL_BYTES - 200, TAIL_BYTES + 200, 7):
            evaluation = "x" * (more - 60) + "\n3/3 ━━━━━━━━━━ 0s 20ms/step - loss: 0.7000\n"
            write_log(tmp_path, f"Epoch 2/9\n{states}{end}{evaluation}")
            assert steps_of(read_replica_progress(tmp_path, NOON)) == (None, None, 3, 3)


def test_only_the_end_of_a_line_that_is_too_long_is_read(tmp_path: Path) -> None:
    states = "".join(BAR % (step, step) for step in range(1, 999))
    write_log(tmp_path, "Epoch 2/9\n" + states * (LONGEST_BAR // len(states) + 2))
    assert steps_of(read_replica_progress(tmp_path, NOON)) == (None, None, 998, 999)


@pytest.mark.parametrize("size", [1, 7, 30, 200, 5000])
def test_a_tail_is_the_end_of_the_log(tmp_path: Path, size: int) -> None:
    text = "one\nEpoch 1/2\n" + "".join(f"\rstate {number}" for number in range(20)) + "\nlast"
    write_log(tmp_path, text)
    tail, is_cut = read_tail(tmp_path / "log", size)
    assert is_cut == (not text.encode().startswith(tail[:4]) or len(tail) < 4)
    assert text.encode().endswith(tail[-size // 2 :])


def test_a_report_takes_precedence_over_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRUMLINE_TRACE", str(tmp_path))
    write_log(tmp_path, "Epoch 2/3\n32/100 ━━━━ 3s 500ms/step - loss: 0.31\n")
    runtime.report(step=132)
    found = read_replica_progress(tmp_path, NOON)
    assert found.progress == Progress(epoch=2, epochs=3, step=132, loss=0.31, is_latest=True)
    assert (found.is_global, found.eta_seconds, found.steps_eta_seconds) == (True, None, None)
    runtime.report(step=133, loss=0.25, epoch=3)
    found = read_replica_progress(tmp_path, NOON)
    assert found.progress == Progress(epoch=3, step=133, loss=0.25, is_latest=True)
    assert not found.is_global


def test_progress_can_be_read_from_a_report_without_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRUMLINE_TRACE", str(tmp_path))
    runtime.report(step=7, loss=float("inf"))
    assert read_replica_progress(tmp_path, NOON).progress == Progress(step=7, loss=float("inf"), is_latest=True)


def write_lines(folder: Path, lines: list[str], *, every: float, exact: bool = True) -> float:
    """Write a log with a mark for each line, `every` seconds apart; return the time of the last line."""
    size, marks, at = 0, b"", NOON
    for number, line in enumerate(lines):
        size, at = size + len(line.encode()) + 1, NOON + number * every
        marks += MARK.pack(at if exact else -at, size)
    (folder / "marks").write_bytes(marks)
    write_log(folder, "".join(f"{line}\n" for line in lines), at)
    return at


def test_the_pace_of_a_log_is_computed_from_its_marks(tmp_path: Path) -> None:
    lines = [f"Epoch [2/3], Step [{step}/100], Loss: 0.5" for step in range(10, 70, 10)]
    at = write_lines(tmp_path, ["loading data", *lines], every=5)
    replica_progress = read_replica_progress(tmp_path, at)
    assert replica_progress.pace == Pace(rate=2.0, seconds=25.0, counts=50, every_seconds=5.0)
    assert (replica_progress.steps_per_second, replica_progress.steps_eta_seconds, replica_progress.eta_seconds) == (
        2.0,
        20.0,
        70.0,
    )
    later = read_replica_progress(tmp_path, at + 15)
    assert (later.steps_eta_seconds, later.eta_seconds) == (5.0, 55.0)
    assert read_replica_progress(tmp_path, at + 30).steps_eta_seconds is None  # the remaining time is over
    for unknown in (read_replica_progress(tmp_path, at + 61), read_replica_progress(tmp_path, at, runs=False)):
        assert (unknown.pace, unknown.eta_seconds, unknown.progress) == (None, None, replica_progress.progress)


def test_the_remaining_time_is_computed_from_epochs_if_there_are_no_steps(tmp_path: Path) -> None:
    at = write_lines(tmp_path, [f"epoch {epoch}/9: loss 0.5" for epoch in range(1, 5)], every=100)
    replica_progress = read_replica_progress(tmp_path, at + 150)  # the usual time between two lines is 100 s
    assert (replica_progress.steps_per_second, replica_progress.steps_eta_seconds, replica_progress.eta_seconds) == (
        None,
        None,
        350.0,
    )


def test_headers_of_epochs_give_no_pace(tmp_path: Path) -> None:
    at = write_lines(tmp_path, [f"Epoch {epoch}/9" for epoch in range(1, 5)], every=10)
    assert read_replica_progress(tmp_path, at).eta_seconds is None


@pytest.mark.parametrize(
    ("lines", "every"),
    [
        (["step 10/90 loss 1", "step 20/90 loss 1"], 1.0),  # the lines are too close in time
        (["step 20/90 loss 1", "step 10/90 loss 1"], 10.0),  # the count has restarted
        (["step 10/80 loss 1", "step 20/90 loss 1"], 10.0),
        (["epoch 1 step 10/90 loss 1", "epoch 2 step 20/90 loss 1"], 10.0),
        (["step 10/90 loss 1", "Epoch 2/3", "step 20/90 loss 1"], 10.0),
        (["step 20/90 loss 1", "step 20/90 loss 1"], 10.0),
    ],
)
def test_steps_that_are_not_one_continuous_count_have_no_pace(tmp_path: Path, lines: list[str], every: float) -> None:
    at = write_lines(tmp_path, lines, every=every)
    replica_progress = read_replica_progress(tmp_path, at)
    assert (replica_progress.pace, replica_progress.steps_eta_seconds) == (None, None)
    assert replica_progress.progress.step is not None


def test_steps_with_unknown_times_have_no_pace(tmp_path: Path) -> None:
    at = write_lines(tmp_path, [f"step {step}/90 loss 1" for step in (10, 20, 30)], every=10, exact=False)
    assert read_replica_progress(tmp_path, at).pace is None
    (tmp_path / "marks").unlink()
    assert read_replica_progress(tmp_path, at).pace is None


def test_lines_that_are_written_in_groups_have_the_same_pace(tmp_path: Path) -> None:
    lines = [f"step {step}/900 loss 1" for step in range(1, 31)]
    heaps = ["\n".join(lines[at : at + 10]) for at in range(0, 30, 10)]
    at = write_lines(tmp_path, heaps, every=5)
    pace = read_replica_progress(tmp_path, at).pace
    assert pace
    assert pace.rate == 2.0


def test_reports_have_a_pace_and_may_have_totals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRUMLINE_TRACE", str(tmp_path))
    for step in range(1, 12):
        write_report(step, {"steps": 21}, lambda: NOON + 2 * step)  # noqa: B023
    replica_progress = read_replica_progress(tmp_path, NOON + 23)
    assert replica_progress.progress == Progress(step=11, steps=21, is_latest=True)
    assert replica_progress.pace == Pace(0.5, 20.0, 10, 2.0)
    assert (replica_progress.steps_per_second, replica_progress.steps_eta_seconds, replica_progress.eta_seconds) == (
        0.5,
        19.0,
        None,
    )
    write_report(1, {"steps": 21}, lambda: NOON + 24)  # the count restarts, and so does the pace
    assert read_replica_progress(tmp_path, NOON + 24).pace is None


def test_the_pace_of_reports_is_measured_over_the_last_minutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRUMLINE_TRACE", str(tmp_path))
    at = NOON
    for step in range(1, 100):
        at += 100 if step < 10 else 5
        write_report(step, {}, lambda: at)  # noqa: B023
    pace = read_replica_progress(tmp_path, at).pace
    assert pace
    assert pace.rate == pytest.approx(0.2)
    assert pace.seconds <= 130


def paced(rate: float, *, seconds: float = 60.0, steps: int | None = None, counts: int = 100) -> ReplicaProgress:
    return ReplicaProgress(Progress(step=500, steps=steps), NOON, pace=Pace(rate, seconds, counts, 1.0))


@pytest.mark.parametrize(
    ("by_replica", "expected"),
    [
        ((paced(10), paced(6)), [1]),
        ((paced(10), paced(7.5)), []),  # noise
        ((paced(10), paced(9), paced(11), paced(2)), [3]),
        ((paced(10), paced(2, seconds=5)), []),  # the pace was measured for too short a time
        ((paced(10), paced(2, counts=3)), []),
        ((paced(10, steps=100), paced(2, steps=500)), []),  # their steps are not the same
        ((paced(10), paced(2).replace(is_reported=True)), []),
        ((paced(10), ReplicaProgress()), []),
        ((paced(2),), []),
    ],
)
def test_a_much_slower_replica_is_found_wherever_it_is(
    by_replica: tuple[ReplicaProgress, ...], expected: list[int]
) -> None:
    assert behind(*by_replica) == expected
    assert behind(*by_replica, role="evaluator") == []


def bar(step: int, *, epoch: int | None = 2, at: float = NOON, rate: float | None = 10.0) -> ReplicaProgress:
    return ReplicaProgress(Progress(epoch, 9, step, 1000, 0.5, rate, is_latest=True), at)


def report(step: int, *, at: float = NOON) -> ReplicaProgress:
    return ReplicaProgress(Progress(step=step, is_latest=True), at, is_global=True)


def behind(*by_replica: ReplicaProgress, role: str = "worker", age: float = 100.0) -> list[int]:
    names = {ReplicaId(role, index): replica_progress for index, replica_progress in enumerate(by_replica)}
    return sorted(name.index for name in find_stragglers(names, dict.fromkeys(names, age)))


@pytest.mark.parametrize(
    ("by_replica", "expected"),
    [
        ((bar(500), bar(300)), [1]),
        ((bar(500), bar(401)), []),  # a fifth is not well behind
        ((bar(5), bar(2)), []),  # nor are three steps
        ((bar(500), bar(510), bar(100), bar(490)), [2]),
        ((bar(500), bar(100), bar(110)), []),  # the median is low: one replica is ahead
        ((bar(300),), []),
        ((), []),
        ((bar(500), bar(300, epoch=3)), []),
        ((bar(500, epoch=None), bar(300, epoch=None)), []),  # it may be in its next epoch
        ((report(500), report(300)), [1]),
        ((report(500), bar(300)), []),
        ((ReplicaProgress(), bar(300), report(1)), []),
    ],
)
def test_a_replica_well_behind_the_median_is_found(
    by_replica: tuple[ReplicaProgress, ...], expected: list[int]
) -> None:
    assert behind(*by_replica) == expected


def test_a_replica_without_recent_output_is_not_behind() -> None:
    assert behind(bar(500), bar(300, at=NOON + 1)) == [1]
    assert behind(bar(500), bar(300, at=NOON - 1)) == [1]
    assert behind(bar(500), bar(300, at=NOON - 30)) == []
    assert behind(bar(500), bar(300, at=NOON - 1, rate=None)) == []
    assert behind(report(500), report(300, at=NOON - 1)) == [1]
    assert behind(report(500), report(300, at=NOON - 50)) == []
    assert behind(report(500), report(300, at=NOON - 1), age=0.5) == []


def test_a_replica_that_wrote_other_lines_since_is_not_behind() -> None:
    chatty = bar(300)
    assert behind(bar(500), chatty.replace(progress=chatty.progress.replace(is_latest=False))) == []


def test_only_replicas_that_train_side_by_side_are_compared() -> None:
    assert behind(bar(500), bar(300), role="evaluator") == []
    chief = ReplicaId("chief", 0)
    line = {chief: bar(500), ReplicaId("worker", 0): bar(300), ReplicaId("worker", 1): bar(500)}
    assert find_stragglers(line, dict.fromkeys(line, 100.0)) == {ReplicaId("worker", 0)}
    assert find_stragglers(line, {chief: 100.0}) == set()  # an ended replica is not behind any more
