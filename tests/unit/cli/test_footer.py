"""The last line of a terminal for a run that is stalled, or has no progress yet."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from drumline.cli.footer import Footer, describe_wait
from drumline.plan.types import BUILD, ReplicaId
from drumline.run.event import StepsResumed, StepsStalled
from drumline.run.state import Ending, Phase, ReplicaState, RunState
from drumline.view.feed import Feed
from scaffold.past_runs import SECOND, append, moments, running, write_run
from scaffold.plans import plan_of

WORKERS = [ReplicaId("worker", index) for index in range(3)]
STARTING = {name: ReplicaState(Phase.STARTING) for name in WORKERS}
BUILDING = {BUILD: ReplicaState(Phase.RUNNING)}


@pytest.mark.parametrize(
    ("state", "spec", "words"),
    [
        (RunState(), "framework: plain", "getting ready"),
        (RunState(Phase.PENDING, waits="2 GPUs, behind run 3"), "framework: plain", "2 GPUs, behind run 3"),
        (RunState(Phase.BUILDING, helpers=BUILDING), "framework: plain", "4.build working"),
        (
            RunState(Phase.STARTING, replicas=STARTING, waiting=3),
            "framework: tensorflow",
            "importing tensorflow, once for all replicas",
        ),
        (RunState(Phase.STARTING, replicas=STARTING, waiting=2), "framework: plain", "starting, 1 of 3 replicas run"),
        (RunState(Phase.RUNNING), "framework: torch", "running; Ctrl-C detaches from it"),
        (
            RunState(Phase.RUNNING, left={"worker": 2}, ending=Ending(Phase.KILLED)),
            "framework: plain",
            "ending, 2 replicas left; `drumline kill --force 4` kills them at once",
        ),
        (RunState(Phase.RESTARTING), "framework: plain", "getting ready"),
        (RunState(Phase.FINISHED), "framework: plain", ""),
    ],
)
def test_the_footer_names_what_the_run_waits_for(state: RunState, spec: str, words: str) -> None:
    assert describe_wait(plan_of(f"{spec}\nroles: {{worker: 3}}", run="4"), state) == words


def test_the_footer_of_a_stalled_run_has_the_duration_the_last_step_and_the_positions_of_the_replicas(
    tmp_path: Path,
) -> None:
    accepted, started, told, later = moments(at=time.time() - 200)
    stalled = StepsStalled(0, 30, 460.0, 60.0, SECOND, "worker.1 is in spin (train.py:3)")
    folder = write_run(tmp_path, 4, [*running(accepted, started), (told, stalled)])
    feed = Feed(folder)
    feed.poll(time.time())
    text = Footer(feed, folder).text()
    assert text.startswith("run 4: stalled: no step for 4m")
    assert text.endswith(", since step 30; worker.1 is in spin (train.py:3)")
    append(folder, [(later, StepsResumed(0, 31, 530.0))])
    feed.poll(time.time())
    assert "stalled" not in Footer(feed, folder).text()
