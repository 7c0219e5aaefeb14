"""Gangs of real frameworks in which one worker fails and then the others do: the card names the first."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from drumline.run.event import Exit
from drumline.run.state import Phase
from scaffold.environments import find_python
from scaffold.rendered_gang import GANG_SECONDS
from scaffold.workspace import Workspace

SCRIPTS = Path(__file__).parents[1] / "cascades" / "scripts"


@pytest.fixture
def workspace(workspace: Workspace) -> Workspace:
    workspace.env["PYTHONPATH"] += f":{SCRIPTS}"
    return workspace


def fall(workspace: Workspace, framework: str, script: str, how: str) -> tuple[dict[str, Any], str]:
    """Inject a fault into a worker; return the cause as data, and the card."""
    command = f"run: {find_python(framework)} {SCRIPTS / script}\nenv: {{FALL: {how}}}"
    run = workspace.train(f"framework: {framework}\ntensorboard: false\n{command}\nroles: {{worker: 2}}")
    run.wait_for(Phase.FAILED, GANG_SECONDS)
    card = workspace.run("status", run.id).out.partition("\n\n")[0]
    return json.loads(workspace.run("status", run.id, "-o", "json").out)["cause"], card


def test_the_exception_of_one_tensorflow_worker_is_shown_without_the_errors_that_follow_in_the_others(
    workspace: Workspace,
) -> None:
    cause, card = fall(workspace, "tensorflow", "mirrored.py", "worker.1 graph")
    assert (cause["replica"], cause["reason"], cause["class"]) == ("1.worker.1", "Exited", "crash")
    assert cause["error"] == "ValueError: bad row in the data: [nan nan]"
    assert cause["progress"]["step"] == 4
    # The failed line of the script is shown, without TensorFlow's text about graphs and operations.
    assert 'mirrored.py", line 15, in check\n┃     raise ValueError(' in card
    assert "node" not in card
    # The message of the other worker depends on what it was doing at that moment.
    gone = r"socket closed|connection (reset by peer|closed by peer|refused)|another task died|.*collective.*"
    assert re.search(rf"┃ 1\.worker\.0 (followed: ({gone})|was stopped)", card)


def test_a_rank_of_torch_that_exits_early_with_0_is_the_cause(workspace: Workspace) -> None:
    cause, card = fall(workspace, "torch", "gloo.py", "worker.1 leave")
    assert (cause["replica"], cause["reason"], cause["exit_code"]) == ("1.worker.1", "LeftEarly", 0)
    assert card.startswith("┃ Run 1 failed. First replica to exit: 1.worker.1, exit code 0; worker.0 failed ")
    assert cause["last_lines"][-1] == "step 5: loss 0.1667"
    assert re.fullmatch(r"connection (closed|reset) by peer|socket closed", cause["followed"][0]["message"])
    assert cause["followed"][0]["replicas"] == ["1.worker.0"]


SAVES = """
import os, signal
import torch

def save(*_):
    torch.save(model.module.state_dict(), "saved.pt")
    os._exit(0)

signal.signal(signal.SIGTERM, save)
torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(100, 100))
try:
    for step in range(1000):
        model(torch.ones(8, 100)).square().mean().backward()
        print(f"step {step}: loss 0.5", flush=True)
        if step == 3 and torch.distributed.get_rank() == 1:
            raise ValueError("bad row")
except RuntimeError as error:  # the collective has failed with its peer
    print(ascii(error), flush=True)
    signal.pause()
"""


def test_a_rank_of_torch_that_handles_term_can_save_after_another_has_failed(workspace: Workspace) -> None:
    script = workspace.write("saves.py", SAVES)
    run = workspace.train(f"framework: torch\nrun: {find_python('torch')} {script}\nroles: {{worker: 2}}")
    run.wait_for(Phase.FAILED, GANG_SECONDS)
    assert str(run.cause.replica) == "worker.1"
    assert run.exit("worker.0") == Exit(code=0)
    assert workspace.exists("saved.pt")
