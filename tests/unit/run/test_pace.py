"""The pace of a training, from the counts in its log and their times."""

from __future__ import annotations

import pytest

from drumline.run.pace import Pace, counted, pace_of
from drumline.run.progress import read_progress


def counts(*lines: str) -> list[int]:
    """Return what a log of these lines counted, the newest first."""
    tail = "".join(f"{line}\n" for line in lines).encode()
    points = counted(tail, read_progress(tail), is_cut=False)
    ends = [point.end for point in points]
    assert ends == sorted(ends, reverse=True)
    return [point.reached for point in points]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["step 1 loss 0.9", "step 2 loss 0.8", "step 3 loss 0.7"], [3, 2, 1]),
        (["step 1 loss 0.9", "saved", "step 2 loss 0.8", "step 2 loss 0.8"], [2, 2, 1]),
        (["step 8 loss 0.9", "step 1 loss 0.8", "step 2 loss 0.7"], [2, 1]),
        (["epoch 1 step 1 loss 0.9", "epoch 2 step 2 loss 0.8", "epoch 2 step 3 loss 0.7"], [3, 2]),
        (["step 1/9 loss 0.9", "step 2/8 loss 0.8", "step 3/8 loss 0.7"], [3, 2]),
        (["epoch 1 loss 0.9", "step 2 loss 0.8"], [2]),
        (["epoch 1 loss 0.9", "epoch 2 loss 0.8"], [2, 1]),
        (["epoch 1 step 5 loss 0.9", "epoch 2 loss 0.8"], [2]),
        (["epoch 1 loss 0.9", "Epoch 2/9"], []),
        (["nothing"], []),
    ],
)
def test_counts_are_those_of_one_series_since_it_began(lines: list[str], expected: list[int]) -> None:
    assert counts(*lines) == expected


def test_only_the_last_two_hundred_counts_are_read() -> None:
    assert counts(*(f"step {number} loss 0.5" for number in range(300))) == [*range(299, 99, -1)]


@pytest.mark.parametrize(
    ("moments", "pace"),
    [
        ([], None),
        ([(10.0, 30)], None),
        ([(10.0, 30), (5.0, 20), (0.0, 10)], Pace(2.0, 10.0, 20, 5.0)),
        ([(4.0, 8), (0.0, 0)], Pace(2.0, 4.0, 8, 4.0)),
        ([(10.0, 30), (10.0, 20), (0.0, 10)], Pace(2.0, 10.0, 20, 10.0)),  # two lines at once
        ([(10.0, 30), (5.0, 30), (0.0, 10)], Pace(4.0, 5.0, 20, 5.0)),  # the same count twice
        ([(2.0, 2), (0.0, 1)], Pace(0.5, 2.0, 1, 2.0)),
        ([(1.75, 2), (0.0, 1)], None),
    ],
)
def test_the_pace_is_known_from_two_counts_that_are_two_seconds_apart(
    moments: list[tuple[float, int]], pace: Pace | None
) -> None:
    assert pace_of(moments) == pace
