"""Steps that a log counts, in their order."""

from __future__ import annotations

from pathlib import Path

import pytest

from drumline.run.progress import LONGEST_BYTES
from drumline.run.steps import Counted, StepReader, usual_stride

BARS = Path(__file__).parent / "bars"


def counts(text: str) -> list[tuple[int | None, int | None]]:
    return [(each.epoch, each.step) for each in StepReader().read(text.encode())]


def test_lines_count_steps_and_epochs() -> None:
    assert counts("step 1 loss 0.5\nhello\nstep 2 loss 0.4\nstep 3 los") == [(None, 1), (None, 2)]
    assert counts("Epoch [2/3], Step [10/100], Loss: 0.3\n") == [(2, 10)]
    assert counts("epoch 3: loss 0.07\n") == [(3, None)]


def test_an_announced_epoch_applies_to_its_bar_and_not_to_an_evaluation() -> None:
    bar = "1/2 ━━ 1s 2ms/step - loss: 0.5\r2/2 ━━ 1s 2ms/step - loss: 0.4\n"
    assert counts(f"Epoch 1/2\n{bar}{bar}Epoch 2/2\n{bar}") == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert counts(bar) == [(None, 1), (None, 2)]


def test_each_step_has_the_offset_of_the_end_of_its_line() -> None:
    text = b"hello\nstep 1 loss 0.5\nstep 2 loss 0.4\n"
    assert [text[: each.end] for each in StepReader().read(text)] == [text[:21], text[:-1]]


@pytest.mark.parametrize("name", ["keras2.txt", "keras3.txt", "keras2-lines.txt", "keras3-lines.txt"])
def test_a_log_that_is_read_in_pieces_has_the_same_steps(name: str) -> None:
    log = (BARS / name).read_bytes()
    whole = list(StepReader().read(log))
    assert whole
    assert [each.order for each in whole] == sorted(each.order for each in whole)
    for size in (1, 7, 100, 4096):
        reader = StepReader()
        pieces = [each for at in range(0, len(log), size) for each in reader.read(log[at : at + size])]
        assert [(each.end, each.order) for each in pieces] == [(each.end, each.order) for each in whole]


@pytest.mark.parametrize(
    ("steps", "stride"), [((), 1), ((7,), 1), ((1, 2, 3), 1), ((10, 20, 30, 37), 10), ((90, 10, 20), 10), ((5, 5), 1)]
)
def test_the_stride_is_the_usual_gap(steps: tuple[int, ...], stride: int) -> None:
    assert usual_stride(Counted(0, step) for step in steps) == stride


def test_the_position_of_a_step_begins_at_zero() -> None:
    assert Counted(0, None).order == (0, 0)
    assert Counted(0, 5, 2).order == (2, 5)


def test_a_piece_that_is_too_long_is_dropped_and_the_next_is_read() -> None:
    reader = StepReader()
    too_long = b"x" * (LONGEST_BYTES + 1)
    assert list(reader.read(too_long)) == []
    assert list(reader.read(b"step 1 loss 0.5")) == []  # it goes on
    assert list(reader.read(b"\n")) == []
    (found,) = reader.read(b"step 2 loss 0.4\n")
    assert (found.step, found.end) == (2, len(too_long) + len(b"step 1 loss 0.5\nstep 2 loss 0.4"))


def test_a_piece_of_the_maximum_length_is_read() -> None:
    reader = StepReader()
    piece = b"step 1 loss 0.5"
    before = b"\x1b[0m" * ((LONGEST_BYTES - len(piece)) // 4)
    before += b" " * (LONGEST_BYTES - len(piece) - len(before))
    assert list(reader.read(before + piece)) == []
    assert [each.step for each in reader.read(b"\n")] == [1]


def test_a_stride_of_one_is_one() -> None:
    assert usual_stride(Counted(0, step) for step in (1, 2, 3, 13, 23)) == 1
    assert usual_stride(Counted(0, step) for step in (30, 20, 10)) == 1
