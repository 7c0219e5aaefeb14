"""What the last line of a terminal says while there is nothing to show for a run yet."""

from __future__ import annotations

import pytest

from drumline.cli.footer import describe_wait
from drumline.plan.types import BUILD, ReplicaId
from drumline.run.state import Ending, Phase, ReplicaState, RunState
from plans import plan_of

WORKERS = [ReplicaId("worker", index) for index in range(3)]
STARTING = {name: ReplicaState(Phase.STARTING) for name in WORKERS}
BUILDING = {BUILD: ReplicaState(Phase.RUNNING)}


@pytest.mark.parametrize(
    ("state", "spec", "words"),
    [
        (RunState(), "framework: plain", "getting ready"),
        (RunState(Phase.PENDING, waits="2 GPUs, behind run 3"), "framework: plain", "2 GPUs, behind run 3"),
        (RunState(Phase.BUILDING, helpers=BUILDING), "framework: plain", "4.build at work"),
        (
            RunState(Phase.STARTING, replicas=STARTING, waiting=3),
            "framework: tensorflow",
            "importing tensorflow, once for all replicas",
        ),
        (RunState(Phase.STARTING, replicas=STARTING, waiting=2), "framework: plain", "starting, 1 of 3 run"),
        (RunState(Phase.RUNNING), "framework: torch", "running; Ctrl-C leaves it alone"),
        (
            RunState(Phase.RUNNING, left={"worker": 2}, ending=Ending(Phase.KILLED)),
            "framework: plain",
            "ending, 2 replicas left; `drumline kill --force 4` does not wait for them",
        ),
        (RunState(Phase.RESTARTING), "framework: plain", "getting ready"),
        (RunState(Phase.FINISHED), "framework: plain", ""),
    ],
)
def test_a_run_says_what_it_waits_for(state: RunState, spec: str, words: str) -> None:
    assert describe_wait(plan_of(f"{spec}\nroles: {{worker: 3}}", run="4"), state) == words
