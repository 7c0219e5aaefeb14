"""How far replicas are, from what lies in their folders, and who of them is behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from drumline import runtime
from drumline.plan.types import ReplicaId
from drumline.run.progress import Progress
from drumline.store.logs import LONGEST_BAR, read_tail
from drumline.view.progress import TAIL_BYTES, Standing, find_behind, read_standing
from past import NOON

BAR = "\r%3d/999 ━━━━━━━━━━ 3s 10ms/step - loss: 0.%04d\b\b\b\b"


def write_log(folder: Path, text: str, at: float = NOON) -> None:
    (folder / "log").write_bytes(text.encode())
    os.utime(folder / "log", (at, at))


def test_a_life_without_a_log_is_as_far_as_nobody_knows(tmp_path: Path) -> None:
    assert read_standing(tmp_path, NOON) == Standing()
    write_log(tmp_path, "loading data\n")
    assert read_standing(tmp_path, NOON) == Standing()


def test_a_bar_says_how_long_it_takes_while_it_moves(tmp_path: Path) -> None:
    write_log(tmp_path, "Epoch 2/3\n32/100 ━━━━ 3s 500ms/step - loss: 0.31\n")
    standing = read_standing(tmp_path, NOON + 1)
    assert standing.progress[:5] == (2, 3, 32, 100, 0.31)
    assert (standing.at, standing.steps_eta_seconds, standing.eta_seconds) == (NOON, 33.0, 83.0)
    for later in (read_standing(tmp_path, NOON + 3600), read_standing(tmp_path, NOON + 1, runs=False)):
        assert later.progress == standing.progress
        assert (later.steps_eta_seconds, later.eta_seconds) == (None, None)


def test_a_bar_drawn_for_hours_is_still_known_to_be_of_its_epoch(tmp_path: Path) -> None:
    states = "".join(BAR % (step, step) for step in range(1, 999))
    write_log(tmp_path, "x" * TAIL_BYTES + f"\nEpoch 1/9\n{states}\nEpoch 2/9\n{states}")
    assert len(states.encode()) > 2 * TAIL_BYTES
    assert read_standing(tmp_path, NOON).progress[:4] == (2, 9, 998, 999)


def test_what_stands_above_is_not_taken_for_more_than_the_line_below_it(tmp_path: Path) -> None:
    states = "".join(BAR % (step, step) for step in range(1, 1000))
    for end in ("\n", "\r\n"):
        for more in range(TAIL_BYTES - 200, TAIL_BYTES + 200, 7):
            evaluation = "x" * (more - 60) + "\n3/3 ━━━━━━━━━━ 0s 20ms/step - loss: 0.7000\n"
            write_log(tmp_path, f"Epoch 2/9\n{states}{end}{evaluation}")
            assert read_standing(tmp_path, NOON).progress[:4] == (None, None, 3, 3)


def test_of_a_line_that_is_too_long_only_the_end_is_read(tmp_path: Path) -> None:
    states = "".join(BAR % (step, step) for step in range(1, 999))
    write_log(tmp_path, "Epoch 2/9\n" + states * (LONGEST_BAR // len(states) + 2))
    assert read_standing(tmp_path, NOON).progress[:4] == (None, None, 998, 999)


@pytest.mark.parametrize("size", [1, 7, 30, 200, 5000])
def test_a_tail_is_the_end_of_the_log(tmp_path: Path, size: int) -> None:
    text = "one\nEpoch 1/2\n" + "".join(f"\rstate {number}" for number in range(20)) + "\nlast"
    write_log(tmp_path, text)
    tail, is_cut = read_tail(tmp_path / "log", size)
    assert is_cut == (not text.encode().startswith(tail[:4]) or len(tail) < 4)
    assert text.encode().endswith(tail[-size // 2 :])


def test_a_report_is_believed_before_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRUMLINE_TRACE", str(tmp_path))
    write_log(tmp_path, "Epoch 2/3\n32/100 ━━━━ 3s 500ms/step - loss: 0.31\n")
    runtime.report(step=132)
    found = read_standing(tmp_path, NOON)
    assert found.progress == Progress(epoch=2, epochs=3, step=132, loss=0.31, is_latest=True)
    assert (found.is_global, found.eta_seconds, found.steps_eta_seconds) == (True, None, None)
    runtime.report(step=133, loss=0.25, epoch=3)
    found = read_standing(tmp_path, NOON)
    assert found.progress == Progress(epoch=3, step=133, loss=0.25, is_latest=True)
    assert not found.is_global


def test_a_report_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRUMLINE_TRACE", str(tmp_path))
    runtime.report(step=7, loss=float("inf"))
    assert read_standing(tmp_path, NOON).progress == Progress(step=7, loss=float("inf"), is_latest=True)


def bar(step: int, *, epoch: int | None = 2, at: float = NOON, rate: float | None = 10.0) -> Standing:
    return Standing(Progress(epoch, 9, step, 1000, 0.5, rate, is_latest=True), at)


def report(step: int, *, at: float = NOON) -> Standing:
    return Standing(Progress(step=step, is_latest=True), at, is_global=True)


def behind(*standings: Standing, role: str = "worker", age: float = 100.0) -> list[int]:
    names = {ReplicaId(role, index): standing for index, standing in enumerate(standings)}
    return sorted(name.index for name in find_behind(names, dict.fromkeys(names, age)))


@pytest.mark.parametrize(
    ("standings", "expected"),
    [
        ((bar(500), bar(300)), [1]),
        ((bar(500), bar(401)), []),  # a fifth is not well behind
        ((bar(5), bar(2)), []),  # nor are three steps
        ((bar(500), bar(510), bar(100), bar(490)), [2]),
        ((bar(500), bar(100), bar(110)), []),  # most are there: one is ahead
        ((bar(300),), []),
        ((), []),
        ((bar(500), bar(300, epoch=3)), []),
        ((bar(500, epoch=None), bar(300, epoch=None)), []),  # it may be in its next epoch
        ((report(500), report(300)), [1]),
        ((report(500), bar(300)), []),
        ((Standing(), bar(300), report(1)), []),
    ],
)
def test_who_is_well_behind_the_middle_is_found(standings: tuple[Standing, ...], expected: list[int]) -> None:
    assert behind(*standings) == expected


def test_who_was_only_silent_is_not_behind() -> None:
    assert behind(bar(500), bar(300, at=NOON + 1)) == [1]
    assert behind(bar(500), bar(300, at=NOON - 1)) == [1]
    assert behind(bar(500), bar(300, at=NOON - 30)) == []
    assert behind(bar(500), bar(300, at=NOON - 1, rate=None)) == []
    assert behind(report(500), report(300, at=NOON - 1)) == [1]
    assert behind(report(500), report(300, at=NOON - 50)) == []
    assert behind(report(500), report(300, at=NOON - 1), age=0.5) == []


def test_who_wrote_of_something_else_since_is_not_behind() -> None:
    chatty = bar(300)
    assert behind(bar(500), chatty._replace(progress=chatty.progress._replace(is_latest=False))) == []


def test_only_who_trains_side_by_side_is_compared() -> None:
    assert behind(bar(500), bar(300), role="evaluator") == []
    chief = ReplicaId("chief", 0)
    line = {chief: bar(500), ReplicaId("worker", 0): bar(300), ReplicaId("worker", 1): bar(500)}
    assert find_behind(line, dict.fromkeys(line, 100.0)) == {ReplicaId("worker", 0)}
    assert find_behind(line, {chief: 100.0}) == set()  # who has ended is no more behind
