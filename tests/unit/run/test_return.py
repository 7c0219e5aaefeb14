"""Whether a supervisor that was killed may return."""

from __future__ import annotations

import pytest

from drumline.run.event import Event, ResumeRequested, RunAccepted, StopRequested, SupervisorReturned
from drumline.run.resume import may_return
from drumline.run.state import Phase, RunState


@pytest.mark.parametrize(
    ("events", "may"),
    [
        ([RunAccepted()], True),
        ([RunAccepted(), SupervisorReturned(1, 5)], True),
        ([RunAccepted(), StopRequested()], False),
        ([RunAccepted(), StopRequested(), SupervisorReturned()], False),
        ([RunAccepted(), StopRequested(), ResumeRequested()], True),
        ([RunAccepted(), StopRequested(), ResumeRequested(), StopRequested(force=True)], False),
    ],
)
def test_a_supervisor_may_return_unless_a_stop_was_requested(events: list[Event], *, may: bool) -> None:
    assert may_return(events, RunState(Phase.RUNNING)) is may


@pytest.mark.parametrize("phase", [Phase.FINISHED, Phase.FAILED, Phase.KILLED])
def test_a_supervisor_does_not_return_to_a_run_that_is_over(phase: Phase) -> None:
    assert not may_return([RunAccepted()], RunState(phase))
