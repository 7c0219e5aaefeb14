"""Variables of other launchers: compared with what the launcher itself sets."""

from __future__ import annotations

import json
import socket
import subprocess
from pathlib import Path

from scaffold.environments import find_python
from scaffold.workspace import Workspace
from training.examples import said, train_to_the_end

# Variables that torchrun sets for its own agent and logs, and variables with other values under drumline.
NOT_COMPARED = {
    "LC_CTYPE",  # set by Python itself
    "MASTER_PORT",
    "OMP_NUM_THREADS",
    "TORCHELASTIC_ERROR_FILE",
    "TORCHELASTIC_SIGNALS_TO_HANDLE",
    "TORCHELASTIC_USE_AGENT_STORE",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING",
}
SHOW = """
import json, os
with open(os.environ["SHOWN"] + os.environ["RANK"], "w") as file:
    json.dump(dict(os.environ), file)
"""
ALONE = """
import os
print("RANK" in os.environ, "WORLD_SIZE" in os.environ)
"""


def test_two_replicas_have_every_variable_of_torchrun_with_its_value(workspace: Workspace, tmp_path: Path) -> None:
    python = find_python("torch")
    workspace.write("show.py", SHOW)
    workspace.write(
        "drumline.yml",
        f"""
        project: launchers
        framework: torch
        warm: false
        restart: {{crash: 2}}
        env: {{SHOWN: "{tmp_path}/ours"}}
        run: {python} show.py
        roles: {{worker: 2}}
        """,
    )
    trained = train_to_the_end(workspace)
    base = {"PATH": workspace.env["PATH"], "TMPDIR": workspace.env["TMPDIR"], "SHOWN": f"{tmp_path}/theirs"}
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    nodes = [
        subprocess.Popen(
            f"{python} -m torch.distributed.run --nnodes 2 --node-rank {rank} --nproc-per-node 1 --role worker"
            f" --master-addr 127.0.0.1 --master-port {port} --rdzv-id {trained.id} --max-restarts 2 show.py".split(),
            cwd=workspace.project,
            env=base,
        )
        for rank in range(2)
    ]
    assert [node.wait() for node in nodes] == [0, 0]
    for rank in range(2):
        ours, theirs = (json.loads(Path(f"{tmp_path}/{which}{rank}").read_text()) for which in ("ours", "theirs"))
        names = theirs.keys() - base.keys() - NOT_COMPARED
        assert {"RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "TORCHELASTIC_RESTART_COUNT"} <= names
        assert {name: ours.get(name) for name in names} == {name: theirs[name] for name in names}


def test_a_single_replica_trains_without_a_rank_as_without_drumline(workspace: Workspace) -> None:
    workspace.write("alone.py", ALONE)
    workspace.write(
        "drumline.yml", f"project: alone\nframework: torch\nwarm: false\nrun: {find_python('torch')} alone.py\n"
    )
    assert said(train_to_the_end(workspace), "worker.0") == "False False\n"
