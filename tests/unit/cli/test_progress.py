"""The progress of a training as text and as table cells."""

from __future__ import annotations

import pytest

from drumline.cli.progress import epoch_cell, step_cell
from drumline.run.progress import Progress
from drumline.view.replica_progress import ReplicaProgress


@pytest.mark.parametrize(
    ("progress", "epoch", "step"),
    [
        (Progress(epoch=4, step=4), "4", ""),
        (Progress(epoch=4, epochs=10, step=4), "4/10", ""),
        (Progress(epoch=1, step=1, steps=16), "1", "1/16"),
        (Progress(epoch=4, step=64), "4", "64"),
        (Progress(step=4), "", "4"),
        (Progress(epoch=4), "4", ""),
    ],
)
def test_epochs_that_are_reported_as_steps_are_not_shown_as_steps(progress: Progress, epoch: str, step: str) -> None:
    replica_progress = ReplicaProgress(progress)
    assert (epoch_cell(replica_progress), step_cell(replica_progress)) == (epoch, step)


def test_a_replica_that_is_behind_is_marked_with_or_without_a_step() -> None:
    assert step_cell(ReplicaProgress(Progress(epoch=4, step=4), is_behind=True)) == "(behind)"
    assert step_cell(ReplicaProgress(Progress(step=9), is_behind=True)) == "9 (behind)"
