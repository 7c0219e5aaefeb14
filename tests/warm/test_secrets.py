"""A warm process outlives the run that started it, and has none of its secrets in its variables or memory."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from drumline.engine.local.warm.client import WarmSettings, make_warm_request, warm_folder
from drumline.engine.local.warm.command import NotWarm
from drumline.engine.local.warm.pool import list_warm_processes
from drumline.engine.warm import WarmProcess
from drumline.run.event import ReplicaStarted
from drumline.run.state import Phase
from scaffold.workspace import Run, Workspace

SECRET = "wq7-never-in-a-warm-process-7qw"
SPEC = f"run: {sys.executable} show.py\nwarm: true\nenv: {{TOKEN: {{from: MY_SOURCE}}}}"
SHOW = "import json, os; print(json.dumps(dict(os.environ)))"


def train(workspace: Workspace, spec: str, env: Mapping[str, str]) -> tuple[Run, dict[str, str]]:
    """Run a script that prints its environment; return the run and the environment."""
    workspace.write("show.py", SHOW)
    run = workspace.train(spec, env=env)
    run.wait_for(Phase.FINISHED)
    return run, json.loads(run.log("worker.0"))


def note(run: Run) -> str:
    (found,) = {event.note for event in run.events if isinstance(event, ReplicaStarted)}
    return found


def only(workspace: Workspace) -> WarmProcess:
    (found,) = list_warm_processes(workspace.home)
    return found


def holds(pid: int, text: str) -> bool:
    """Return whether a process has a text in its initial variables, its arguments or its memory."""
    for name in ("environ", "cmdline"):
        if text.encode() in Path(f"/proc/{pid}/{name}").read_bytes():
            return True
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            match = re.match(r"([0-9a-f]+)-([0-9a-f]+) r", line)
            if not match or line.endswith("[vvar]"):
                continue
            start, end = (int(number, 16) for number in match.groups())
            try:
                memory.seek(start)
                if text.encode() in memory.read(end - start):
                    return True
            except (OSError, ValueError, OverflowError):
                continue
    return False


def test_a_secret_reaches_the_replica_and_no_warm_process(workspace: Workspace) -> None:
    run, seen = train(workspace, SPEC, {"MY_SOURCE": SECRET, "PLAIN": "plainly-to-be-seen"})
    assert note(run) == "warm"
    assert seen["TOKEN"] == seen["MY_SOURCE"] == SECRET
    warm = only(workspace).pid
    assert holds(warm, "plainly-to-be-seen")  # the search finds texts that are there
    assert not holds(warm, SECRET)
    files = [path for path in warm_folder(workspace.home).rglob("*") if path.is_file()]
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]


def test_a_warm_process_that_serves_two_runs_gives_each_its_own_secret_and_keeps_neither(workspace: Workspace) -> None:
    _, first = train(workspace, SPEC, {"MY_SOURCE": SECRET, "SSH_AUTH_SOCK": "/of/the/first"})
    warm = only(workspace).pid
    run, second = train(workspace, SPEC, {"MY_SOURCE": SECRET[::-1]})
    assert (note(run), only(workspace).pid) == ("warm", warm)
    assert (first["TOKEN"], second["TOKEN"]) == (SECRET, SECRET[::-1])
    cold, by_itself = train(workspace, SPEC.replace("warm: true", "warm: false"), {"MY_SOURCE": SECRET[::-1]})
    assert note(cold) == ""
    assert json.dumps(second).replace(f"/runs/{run.id}/", "/runs/N/") == json.dumps(
        {**by_itself, "DRUMLINE_RUN": run.id}
    ).replace(f"/runs/{cold.id}/", "/runs/N/")
    assert not holds(warm, SECRET)
    assert not holds(warm, SECRET[::-1])


def test_variables_with_names_of_secrets_are_not_in_a_warm_process(workspace: Workspace) -> None:
    env = {"WANDB_API_KEY": SECRET, "AWS_SECRET_ACCESS_KEY": SECRET, "GITHUB_TOKEN": SECRET, "DB_PASSWORD": SECRET}
    run, seen = train(workspace, f"run: {sys.executable} show.py\nwarm: true", env)
    assert note(run) == "warm"
    assert {seen[name] for name in env} == {SECRET}
    assert not holds(only(workspace).pid, SECRET)


def test_with_secrets_the_modules_of_the_spec_are_imported_by_the_replica_and_not_by_the_warm_process(
    workspace: Workspace,
) -> None:
    modules = workspace.project / "modules"
    modules.mkdir()
    (modules / "curious.py").write_text("import os\nSEEN = os.environ.get('TOKEN')\n")
    workspace.write("show.py", "import curious; print(curious.SEEN)")
    spec = SPEC.replace("warm: true", "warm: {import: [curious]}")
    run = workspace.train(spec, env={"MY_SOURCE": SECRET, "PYTHONPATH": str(modules)})
    run.wait_for(Phase.FINISHED)
    assert (note(run), run.log("worker.0").decode()) == ("warm", f"{SECRET}\n")
    assert only(workspace).modules == ()
    assert not holds(only(workspace).pid, SECRET)


@pytest.mark.parametrize("name", ["TF_XLA_FLAGS", "PYTHONPATH", "LD_PRELOAD_PATH"])
def test_a_replica_starts_cold_if_an_import_may_read_a_secret(tmp_path: Path, name: str) -> None:
    (tmp_path / "train.py").write_text("import tensorflow\n")
    kind = WarmSettings("tensorflow", (), 600.0, frozenset(), frozenset({name}))
    with pytest.raises(NotWarm, match=f"{name} is a secret, and may be read when tensorflow is imported"):
        asyncio.run(make_warm_request(kind, [sys.executable, "train.py"], dict(os.environ), str(tmp_path)))
