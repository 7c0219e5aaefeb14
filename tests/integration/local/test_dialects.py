"""Files of older systems run unchanged."""

from __future__ import annotations

import json
import re

from drumline.run.state import Phase
from scaffold.dialects import GUIDE
from scaffold.workspace import Run, Workspace

SCRIPT = """
    import json, os, sys, time
    task = json.loads(os.environ["TF_CONFIG"])
    print(sys.argv[1:], os.environ["NUM_LAYERS"], json.dumps(task), flush=True)
    while task["task"]["type"] == "ps":
        time.sleep(60)
    while task["task"]["index"] == 0 and not os.path.exists("seen"):
        time.sleep(0.01)
"""
VALUES = ("-p", "num-layers=2", "-p", "learning-rate=0.1")


def test_the_example_of_the_riseml_guide_trains_unchanged(workspace: Workspace) -> None:
    workspace.write("riseml.yml", GUIDE)
    workspace.write("train_model.py", SCRIPT)
    answer = workspace.run("train", "-d", "--no-warm", "--oversubscribe", *VALUES)
    assert answer.code == 0, answer.err
    run = Run(workspace, answer.out.strip())
    run.wait_for(Phase.RUNNING)
    table = workspace.run("monitor", "--once", run.id).out.splitlines()
    workspace.write("seen", "")
    run.wait_for(Phase.FINISHED)
    # The columns of the guide's table; the ids are those of TF_CONFIG.
    assert re.split(r" {2,}", table[0]) == [
        *("ID", "PROJECT", "STATE", "CPU %", "MEM %", "MEM Used / Total", "GPU %", "GPU-MEM %", "GPU-MEM Used / Total"),
    ]
    assert any(re.match(rf"{run.id}\.worker\.0 +ai-toaster +RUNNING ", row) for row in table[1:])
    logs = workspace.run("logs", run.id).out.splitlines()
    assert all(re.match(rf"{run.id}(\.\w+\.\d)? +\| \[\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\dZ\] ", line) for line in logs)
    assert any(line.endswith("--> FINISHED") and line.startswith(f"{run.id} ") for line in logs)
    words, layers, config = re.fullmatch(r"(\[.*\]) (\S+) (\{.*\})\n", run.log("worker.2").decode()).groups()  # type: ignore[union-attr]
    assert words == str(
        ["--num-layers", "2", "--learning-rate", "0.1", "--training-data", "/data/my-project"],
    )
    assert layers == "2"
    assert json.loads(config)["task"] == {"type": "worker", "index": 2}
    assert {role: len(hosts) for role, hosts in json.loads(config)["cluster"].items()} == {"worker": 3, "ps": 2}


def test_all_missing_values_are_named_in_one_error(workspace: Workspace) -> None:
    workspace.write("riseml.yml", GUIDE)
    answer = workspace.run("train", "-f", "riseml.yml", "--oversubscribe")
    assert answer.code == 2
    assert answer.err.endswith(
        "error: riseml.yml: `num-layers` and `learning-rate` have no value\n"
        "hint: set them: `-p num-layers=… -p learning-rate=…`\n"
    )
