"""Environments with real packages made by the tests: built once, complete or not at all, shared, kept while in use."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from drumline.run.event import ReplicaExited, ReplicaStarted
from drumline.run.state import Phase
from drumline.runtime.environment import MARK, is_ready, kept
from scaffold.processes import kill_and_wait
from scaffold.waiting import PATIENCE_SECONDS, wait_until
from scaffold.wheels import make_wheel
from scaffold.workspace import Run, Workspace, mounted

UV = Path(sys.executable).with_name("uv")
# Records the call, and waits until the test opens the gate.
GATED = f"""#!/bin/sh
echo $$ >> "$HERE/calls"
until [ -e "$HERE/go" ]; do sleep 0.05; done
exec {UV} "$@"
"""
SPEC = """
    environment: [drumbeat]
    roles: {worker: 2}
    run: python -c "import drumbeat, snare, drumline.runtime, sys; print(drumbeat.VERSION, sys.prefix)"
"""


@pytest.fixture
def builder(workspace: Workspace) -> None:
    """Return a workspace in which pip uses no index; the packages are in `wheels`."""
    wheels = workspace.project / "wheels"
    make_wheel(wheels, "drumbeat", "1.2", needs=("snare>=2",))
    make_wheel(wheels, "snare", "2.5")
    workspace.env = {name: value for name, value in workspace.env.items() if not name.startswith(("PIP_", "UV_"))}
    config = workspace.path / "pip.conf"
    config.write_text(f"[global]\nfind-links = {wheels}\n")
    workspace.env |= {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": str(config)}


@pytest.fixture
def uv(workspace: Workspace, builder: None) -> None:
    """Return the same workspace with uv in PATH, behind a gate that is open."""
    tools = workspace.path / "tools"
    tools.mkdir()
    (tools / "uv").write_text(GATED)
    (tools / "uv").chmod(0o755)
    workspace.env["PATH"] = f"{tools}:{workspace.env['PATH']}"
    workspace.write("go", "")


def environments(workspace: Workspace) -> list[str]:
    return kept(f"{workspace.env['XDG_CACHE_HOME']}/drumline/environments")


def close_gate(workspace: Workspace) -> None:
    (workspace.project / "go").unlink()


def said(run: Run, replica: str = "build") -> str:
    return run.log(replica).decode()


def started(run: Run) -> list[str]:
    return [str(event.replica) for event in run.events if isinstance(event, ReplicaStarted)]


def check_first_and_second(workspace: Workspace, tool: str) -> None:
    """Train with a new environment; then train again without any package to build from."""
    run = workspace.train(SPEC)
    run.wait_for(Phase.FINISHED)
    (folder,) = environments(workspace)
    assert said(run, "worker.0") == said(run, "worker.1") == f"1.2 {folder}\n"
    assert f"drumline: building {folder} with {tool}" in said(run)
    assert f"drumline: built {folder}: " in said(run)
    assert started(run)[0] == "build"
    assert Path(folder).stat().st_mode & 0o777 == 0o700
    shutil.rmtree(workspace.project / "wheels")
    again = workspace.train(SPEC)
    again.wait_for(Phase.FINISHED)
    assert said(again, "worker.0") == f"1.2 {folder}\n"
    assert sorted(started(again)) == ["worker.0", "worker.1"]  # no build was needed
    found = next(event for event in again.events if isinstance(event, ReplicaExited))
    assert (str(found.replica), found.exit.ok, found.exit.message) == ("build", True, f"{folder} exists")
    assert f"{again.id}.build exited: exit code 0; {folder} exists" in workspace.run("events", again.id).out


@pytest.mark.usefixtures("builder")
def test_pip_builds_an_environment_once_and_the_next_run_uses_it(workspace: Workspace) -> None:
    check_first_and_second(workspace, "venv and pip")


@pytest.mark.usefixtures("uv")
def test_uv_builds_an_environment_once_with_the_settings_of_pip(workspace: Workspace) -> None:
    check_first_and_second(workspace, "uv")
    assert len(workspace.numbers("calls")) == 2, "once to make it, once to install"


@pytest.mark.usefixtures("uv")
def test_a_run_is_building_while_its_replicas_wait(workspace: Workspace) -> None:
    close_gate(workspace)
    run = workspace.train(SPEC)
    workspace.wait_numbers("calls", 1)
    wait_until(lambda: started(run))
    assert run.state.phase is Phase.BUILDING
    shown = json.loads(workspace.run("status", run.id, "-o", "json").out)
    assert {row["id"]: row["state"] for row in shown["replicas"]} == {
        f"{run.id}.build": "RUNNING",
        f"{run.id}.worker.0": "CREATED",
        f"{run.id}.worker.1": "CREATED",
    }
    assert shown["environment"] == {"requirements": ["drumbeat"], "pythons": []}
    assert [row["state"] for row in json.loads(workspace.run("environments", "-o", "json").out)] == ["building"]
    assert workspace.run("environments", "--prune").out == ""
    workspace.write("go", "")
    run.wait_for(Phase.FINISHED)
    assert "building" in workspace.run("logs", f"{run.id}.build").out


@pytest.mark.usefixtures("uv")
def test_of_two_runs_with_the_same_environment_one_builds_it_and_the_other_waits(workspace: Workspace) -> None:
    close_gate(workspace)
    one = workspace.train(SPEC)
    workspace.wait_numbers("calls", 1)
    other = workspace.train(SPEC)
    wait_until(lambda: "is being built by another process" in said(other))
    workspace.write("go", "")
    for run in (one, other):
        run.wait_for(Phase.FINISHED)
        assert said(run, "worker.1") == f"1.2 {environments(workspace)[0]}\n"
    assert len(workspace.numbers("calls")) == 2
    assert "is ready now" in said(other)


@pytest.mark.usefixtures("uv")
@pytest.mark.parametrize("victim", ["builder", "all"])
def test_an_incomplete_environment_of_a_killed_build_is_not_used_and_is_built_again(
    workspace: Workspace, victim: str
) -> None:
    close_gate(workspace)
    run = workspace.train(SPEC)
    (installer,) = workspace.wait_numbers("calls", 1)
    (folder,) = environments(workspace)
    Path(folder, "half").touch()
    if victim == "all":
        run.kill_supervisor()
        kill_and_wait(run.keeper("build"), run.pid("build"), installer)
        assert workspace.run("supervise", run.id).code == 0
    else:
        os.kill(run.pid("build"), signal.SIGKILL)
    run.wait_for(Phase.FAILED)
    assert (run.cause.reason, str(run.cause.replica)) == ("NotBuilt", "build")
    assert not is_ready(folder)
    workspace.write("go", "")
    again = workspace.train(SPEC)
    again.wait_for(Phase.FINISHED)
    assert is_ready(folder)
    assert not Path(folder, "half").exists()


@pytest.mark.usefixtures("uv")
def test_a_run_that_is_killed_during_a_build_leaves_no_environment(workspace: Workspace) -> None:
    close_gate(workspace)
    run = workspace.train(SPEC)
    workspace.wait_numbers("calls", 1)
    assert workspace.run("kill", run.id).code == 0
    run.wait_for(Phase.KILLED)
    assert environments(workspace) == []


@pytest.mark.usefixtures("uv")
def test_a_supervisor_killed_during_a_build_is_replaced_and_the_environment_is_built_once(workspace: Workspace) -> None:
    close_gate(workspace)
    run = workspace.train(SPEC)
    workspace.wait_numbers("calls", 1)
    run.kill_supervisor()
    assert workspace.run("supervise", run.id).code == 0
    workspace.write("go", "")
    run.wait_for(Phase.FINISHED)
    assert len(workspace.numbers("calls")) == 2


@pytest.mark.usefixtures("uv")
def test_a_supervisor_that_returns_without_its_python_lets_replicas_run(workspace: Workspace) -> None:
    python = workspace.path / "tools" / "python3.97"
    python.write_text(f"#!/bin/sh\necho 3.97.0 {os.path.realpath(sys.executable)}\n")
    python.chmod(0o755)
    run = workspace.train("""
        environment: {python: 3.97}
        run: [touch $HERE/up, 'until [ -e $HERE/end ]; do sleep 0.05; done']
    """)
    wait_until(lambda: workspace.exists("up"))
    run.kill_supervisor()
    python.unlink()
    assert workspace.run("supervise", run.id).code == 0
    workspace.write("end", "")
    run.wait_for(Phase.FINISHED)


@pytest.mark.parametrize("tool", ["builder", "uv"])
def test_a_requirement_that_does_not_exist_fails_the_run_with_the_message_of_the_installer(
    workspace: Workspace, tool: str, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue(tool)
    workspace.write_spec(f"restart: 3\n{SPEC.replace('[drumbeat]', '[drumbeat==9]').replace('    ', '')}")
    answer = workspace.run("train")
    assert answer.code == 1
    (run,) = workspace.runs()
    run.wait_for(Phase.FAILED)
    assert (run.cause.reason, run.cause.exit.code, run.state.attempt) == ("NotBuilt", 1, 0)
    assert "drumbeat==9" in said(run)
    assert said(run).endswith("could not install the requirements (exit code 1)\n")
    assert f"{run.id}.build" in answer.out
    assert environments(workspace) == []


@pytest.mark.usefixtures("uv")
def test_prune_keeps_environments_in_use_and_removes_the_others(workspace: Workspace) -> None:
    run = workspace.train(
        "environment: [drumbeat]\nrun: [touch $HERE/up, 'until [ -e $HERE/end ]; do sleep 0.05; done']"
    )
    wait_until(lambda: workspace.exists("up"))
    (folder,) = environments(workspace)
    run.kill_supervisor()  # only the replica uses it
    assert "in use" in workspace.run("environments").out
    assert workspace.run("environments", "--prune").out == ""
    assert is_ready(folder)
    workspace.write("end", "")
    workspace.run("supervise", run.id)
    run.wait_for(Phase.FINISHED)
    shown = workspace.run("environments").out.splitlines()
    assert shown[0].split() == ["NAME", "STATE", "SIZE", "USED", "REQUIREMENTS"]
    assert shown[1].split()[:2] == [Path(folder).name, "ready"]
    assert workspace.run("environments", "--prune").out == f"removed {folder}\n"
    assert environments(workspace) == []
    assert "there are no environments in" in workspace.run("environments").err


@pytest.mark.usefixtures("uv")
def test_a_wheel_counts_by_its_content_and_an_environment_unused_for_a_month_is_removed_when_another_is_built(
    workspace: Workspace,
) -> None:
    workspace.write("requirements.txt", "# ours\nwheels/snare-2.5-py3-none-any.whl\n")
    text = 'environment: requirements.txt\nrun: python -c "import snare; print(snare.VERSION)"'
    first = workspace.train(text)
    first.wait_for(Phase.FINISHED)
    assert said(first, "worker.0") == "2.5\n"
    (old,) = environments(workspace)
    os.utime(f"{old}.lock", (1, 1))
    make_wheel(workspace.project / "wheels", "snare", "2.5", code='VERSION = "mended"\n')
    second = workspace.train(text)
    second.wait_for(Phase.FINISHED)
    assert said(second, "worker.0") == "mended\n"
    assert f"drumline: removed {old}, which was not used for 30 days" in said(second)
    assert old not in environments(workspace)
    plan = first.folder.plan()
    assert plan.environment
    assert plan.environment.requirements[0].startswith(
        f"snare @ file://{workspace.project}/wheels/snare-2.5-py3-none-any.whl#sha256="
    )


@pytest.mark.usefixtures("uv")
def test_data_is_prepared_in_the_environment_and_the_rendered_script_builds_and_uses_it(workspace: Workspace) -> None:
    text = (
        SPEC
        + "    output: out\n    data: {path: data, prepare: 'python -c \"import snare\" && touch $DATA_DIR/made'}\n"
    )
    workspace.write_spec(text)
    script = workspace.write("script", workspace.run("render").out)
    for word in ("build", "prepare", "worker.1"):
        command = workspace.command(str(script), word, program=("sh",), env={"PYTHONHOME": ""})
        out, err = command.communicate(timeout=PATIENCE_SECONDS)
        assert command.returncode == 0, err
    assert out == f"1.2 {environments(workspace)[0]}\n"
    assert workspace.exists("data/made")
    run = workspace.train(text)
    run.wait_for(Phase.FINISHED)
    assert len(workspace.numbers("calls")) == 2


def test_invalid_requirements_and_a_missing_python_are_refused_before_anything_starts(
    workspace: Workspace,
) -> None:
    workspace.write("requirements.txt", "numpy\nwhat is this\n")
    workspace.write_spec("run: 'true'\nenvironment:\n  requirements: requirements.txt\n")
    answer = workspace.run("train")
    assert answer.code == 2
    assert "drumline.yml:5: environment.requirements: in " in answer.err
    assert "requirements.txt, line 2: `what is this` is no requirement" in answer.err
    workspace.write_spec("run: 'true'\nenvironment: {python: 3.97}")
    for command in ("train", "check", "render"):
        answer = workspace.run(command)
        assert answer.code == 2
        assert "needs Python 3.97, which is not on this machine" in answer.err
    assert workspace.runs() == []


def test_a_run_without_an_environment_builds_none(workspace: Workspace) -> None:
    run = workspace.train("run: python -c 'import sys; print(sys.prefix)'")
    run.wait_for(Phase.FINISHED)
    assert said(run, "worker.0") == f"{sys.prefix}\n"
    assert environments(workspace) == []
    assert not Path(workspace.env["XDG_CACHE_HOME"], "drumline").exists()


@pytest.mark.usefixtures("uv")
def test_a_full_disk_fails_the_build_and_leaves_no_incomplete_environment(workspace: Workspace) -> None:
    make_wheel(workspace.project / "wheels", "drumbeat", "1.3", code="#" * 3_000_000)
    small = workspace.path / "small"
    with mounted(small, "2M"):
        run = workspace.train(SPEC, env={"XDG_CACHE_HOME": str(small), "UV_CACHE_DIR": str(workspace.path / "uv")})
        run.wait_for(Phase.FAILED)
        assert run.cause.reason == "NotBuilt"
        assert "No space left on device" in said(run)
        assert kept(str(small / "drumline" / "environments")) == []


@pytest.mark.usefixtures("uv")
def test_an_environment_without_its_mark_is_built_again(workspace: Workspace) -> None:
    workspace.train(SPEC).wait_for(Phase.FINISHED)
    (folder,) = environments(workspace)
    Path(folder, MARK).unlink()
    run = workspace.train(SPEC)
    run.wait_for(Phase.FINISHED)
    assert len(workspace.numbers("calls")) == 4
    assert is_ready(folder)
