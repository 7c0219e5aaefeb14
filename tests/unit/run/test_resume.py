"""A resumed run keeps the causes of its earlier attempts."""

from __future__ import annotations

import pytest

from drumline.run.describe import describe_cause
from scaffold.gangs import gang
from scaffold.scenarios import ScenarioReplay


@pytest.mark.parametrize(
    ("events", "words"),
    [
        (("worker.0 exits 3",), "worker.0: exit code 3"),
        (("stop", "worker.0 signal 15"), "it was killed"),
        (("preempted", "worker.0 signal 15"), "it was preempted"),
    ],
)
def test_a_resumed_run_keeps_the_cause_of_its_last_attempt_with_its_description(
    events: tuple[str, ...], words: str
) -> None:
    replay = ScenarioReplay(gang("worker"))
    for each in ("running", *events, "resumed", "accepted"):
        replay.apply(each)
    assert replay.state.attempt == 1
    assert [describe_cause(each) for each in replay.state.causes] == [words]
    assert replay.state.verdicts == (words,)
