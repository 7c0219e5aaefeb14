"""Environments of real packages, made on the spot: built once, whole or not at all, shared, kept while in use."""

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
from integration.local.runs import PATIENCE_SECONDS, House, Run, kill_and_wait, mounted, wait_until
from wheels import make_wheel

UV = Path(sys.executable).with_name("uv")
# Says that it was called, and waits until the test lets it go on.
GATED = f"""#!/bin/sh
echo $$ >> "$HERE/calls"
until [ -e "$HERE/go" ]; do sleep 0.01; done
exec {UV} "$@"
"""
SPEC = """
    environment: [drumbeat]
    roles: {worker: 2}
    run: python -c "import drumbeat, snare, drumline.runtime, sys; print(drumbeat.VERSION, sys.prefix)"
"""


@pytest.fixture
def builder(house: House) -> None:
    """Whatever pip is told here, nothing is asked of anybody else; the packages are in `wheels`."""
    wheels = house.project / "wheels"
    make_wheel(wheels, "drumbeat", "1.2", needs=("snare>=2",))
    make_wheel(wheels, "snare", "2.5")
    house.env = {name: value for name, value in house.env.items() if not name.startswith(("PIP_", "UV_"))}
    config = house.path / "pip.conf"
    config.write_text(f"[global]\nfind-links = {wheels}\n")
    house.env |= {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": str(config)}


@pytest.fixture
def uv(house: House, builder: None) -> None:
    """The same with uv on the path, behind a gate that is open."""
    tools = house.path / "tools"
    tools.mkdir()
    (tools / "uv").write_text(GATED)
    (tools / "uv").chmod(0o755)
    house.env["PATH"] = f"{tools}:{house.env['PATH']}"
    house.write("go", "")


def environments(house: House) -> list[str]:
    return kept(f"{house.env['XDG_CACHE_HOME']}/drumline/environments")


def close_gate(house: House) -> None:
    (house.project / "go").unlink()


def said(run: Run, replica: str = "build") -> str:
    return run.log(replica).decode()


def started(run: Run) -> list[str]:
    return [str(event.replica) for event in run.events if isinstance(event, ReplicaStarted)]


def check_first_and_second(house: House, tool: str) -> None:
    """Build and train; then train again with nothing to build from."""
    run = house.train(SPEC)
    run.wait_for(Phase.FINISHED)
    (folder,) = environments(house)
    assert said(run, "worker.0") == said(run, "worker.1") == f"1.2 {folder}\n"
    assert f"drumline: building {folder} with {tool}" in said(run)
    assert f"drumline: built {folder}: " in said(run)
    assert started(run)[0] == "build"
    assert Path(folder).stat().st_mode & 0o777 == 0o700
    shutil.rmtree(house.project / "wheels")
    again = house.train(SPEC)
    again.wait_for(Phase.FINISHED)
    assert said(again, "worker.0") == f"1.2 {folder}\n"
    assert sorted(started(again)) == ["worker.0", "worker.1"]  # nobody had to build
    found = next(event for event in again.events if isinstance(event, ReplicaExited))
    assert (str(found.replica), found.exit.ok, found.exit.message) == ("build", True, f"{folder} was there")
    assert f"{again.id}.build exited: exit code 0; {folder} was there" in house.run("events", again.id).out


@pytest.mark.usefixtures("builder")
def test_pip_builds_it_once_and_what_is_there_needs_nobody(house: House) -> None:
    check_first_and_second(house, "venv and pip")


@pytest.mark.usefixtures("uv")
def test_uv_builds_it_once_and_is_told_what_pip_was_told(house: House) -> None:
    check_first_and_second(house, "uv")
    assert len(house.numbers("calls")) == 2, "once to make it, once to install"


@pytest.mark.usefixtures("uv")
def test_a_run_is_building_while_its_line_waits_and_says_so(house: House) -> None:
    close_gate(house)
    run = house.train(SPEC)
    house.wait_numbers("calls", 1)
    wait_until(lambda: started(run))
    assert run.state.phase is Phase.BUILDING
    shown = json.loads(house.run("status", run.id, "-o", "json").out)
    assert {row["id"]: row["state"] for row in shown["replicas"]} == {
        f"{run.id}.build": "RUNNING",
        f"{run.id}.worker.0": "CREATED",
        f"{run.id}.worker.1": "CREATED",
    }
    assert shown["environment"] == {"requirements": ["drumbeat"], "pythons": []}
    assert [row["state"] for row in json.loads(house.run("environments", "-o", "json").out)] == ["building"]
    assert house.run("environments", "--prune").out == ""
    house.write("go", "")
    run.wait_for(Phase.FINISHED)
    assert "building" in house.run("logs", f"{run.id}.build").out


@pytest.mark.usefixtures("uv")
def test_of_two_runs_that_want_the_same_one_builds_and_the_other_waits(house: House) -> None:
    close_gate(house)
    one = house.train(SPEC)
    house.wait_numbers("calls", 1)
    other = house.train(SPEC)
    wait_until(lambda: "is being built by somebody else" in said(other))
    house.write("go", "")
    for run in (one, other):
        run.wait_for(Phase.FINISHED)
        assert said(run, "worker.1") == f"1.2 {environments(house)[0]}\n"
    assert len(house.numbers("calls")) == 2
    assert "is there now" in said(other)


@pytest.mark.usefixtures("uv")
@pytest.mark.parametrize("victim", ["builder", "everybody"])
def test_a_build_that_is_killed_leaves_nothing_that_counts_and_the_next_builds_it(house: House, victim: str) -> None:
    close_gate(house)
    run = house.train(SPEC)
    (installer,) = house.wait_numbers("calls", 1)
    (folder,) = environments(house)
    Path(folder, "half").touch()
    if victim == "everybody":
        run.kill_supervisor()
        kill_and_wait(run.keeper("build"), run.pid("build"), installer)
        assert house.run("supervise", run.id).code == 0
    else:
        os.kill(run.pid("build"), signal.SIGKILL)
    run.wait_for(Phase.FAILED)
    assert (run.cause.reason, str(run.cause.replica)) == ("NotBuilt", "build")
    assert not is_ready(folder)
    house.write("go", "")
    again = house.train(SPEC)
    again.wait_for(Phase.FINISHED)
    assert is_ready(folder)
    assert not Path(folder, "half").exists()


@pytest.mark.usefixtures("uv")
def test_a_run_that_is_killed_while_it_builds_leaves_nothing(house: House) -> None:
    close_gate(house)
    run = house.train(SPEC)
    house.wait_numbers("calls", 1)
    assert house.run("kill", run.id).code == 0
    run.wait_for(Phase.KILLED)
    assert environments(house) == []


@pytest.mark.usefixtures("uv")
def test_a_supervisor_that_dies_while_it_is_built_is_replaced_and_nothing_is_built_twice(house: House) -> None:
    close_gate(house)
    run = house.train(SPEC)
    house.wait_numbers("calls", 1)
    run.kill_supervisor()
    assert house.run("supervise", run.id).code == 0
    house.write("go", "")
    run.wait_for(Phase.FINISHED)
    assert len(house.numbers("calls")) == 2


@pytest.mark.usefixtures("uv")
def test_a_supervisor_that_comes_back_where_its_python_is_not_found_lets_the_line_go_on(house: House) -> None:
    python = house.path / "tools" / "python3.97"
    python.write_text(f"#!/bin/sh\necho 3.97.0 {os.path.realpath(sys.executable)}\n")
    python.chmod(0o755)
    run = house.train("""
        environment: {python: 3.97}
        run: [touch $HERE/up, 'until [ -e $HERE/end ]; do sleep 0.01; done']
    """)
    wait_until(lambda: house.exists("up"))
    run.kill_supervisor()
    python.unlink()
    assert house.run("supervise", run.id).code == 0
    house.write("end", "")
    run.wait_for(Phase.FINISHED)


@pytest.mark.parametrize("tool", ["builder", "uv"])
def test_a_requirement_that_nobody_has_fails_the_run_with_the_installers_words(
    house: House, tool: str, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue(tool)
    house.write_spec(f"restart: 3\n{SPEC.replace('[drumbeat]', '[drumbeat==9]').replace('    ', '')}")
    answer = house.run("train")
    assert answer.code == 1
    (run,) = house.runs()
    run.wait_for(Phase.FAILED)
    assert (run.cause.reason, run.cause.exit.code, run.state.attempt) == ("NotBuilt", 1, 0)
    assert "drumbeat==9" in said(run)
    assert said(run).endswith("could not install the requirements (exit code 1)\n")
    assert f"{run.id}.build" in answer.out
    assert environments(house) == []


@pytest.mark.usefixtures("uv")
def test_what_is_used_is_kept_and_what_is_not_can_go(house: House) -> None:
    run = house.train("environment: [drumbeat]\nrun: [touch $HERE/up, 'until [ -e $HERE/end ]; do sleep 0.01; done']")
    wait_until(lambda: house.exists("up"))
    (folder,) = environments(house)
    run.kill_supervisor()  # the replica alone uses it
    assert "in use" in house.run("environments").out
    assert house.run("environments", "--prune").out == ""
    assert is_ready(folder)
    house.write("end", "")
    house.run("supervise", run.id)
    run.wait_for(Phase.FINISHED)
    shown = house.run("environments").out.splitlines()
    assert shown[0].split() == ["NAME", "STATE", "SIZE", "USED", "REQUIREMENTS"]
    assert shown[1].split()[:2] == [Path(folder).name, "ready"]
    assert house.run("environments", "--prune").out == f"removed {folder}\n"
    assert environments(house) == []
    assert "there are none" in house.run("environments").err


@pytest.mark.usefixtures("uv")
def test_a_wheel_counts_by_its_content_and_what_nobody_used_for_a_month_goes_when_another_is_built(
    house: House,
) -> None:
    house.write("requirements.txt", "# ours\nwheels/snare-2.5-py3-none-any.whl\n")
    text = 'environment: requirements.txt\nrun: python -c "import snare; print(snare.VERSION)"'
    first = house.train(text)
    first.wait_for(Phase.FINISHED)
    assert said(first, "worker.0") == "2.5\n"
    (old,) = environments(house)
    os.utime(f"{old}.lock", (1, 1))
    make_wheel(house.project / "wheels", "snare", "2.5", code='VERSION = "mended"\n')
    second = house.train(text)
    second.wait_for(Phase.FINISHED)
    assert said(second, "worker.0") == "mended\n"
    assert f"drumline: removed {old}, which nobody used for 30 days" in said(second)
    assert old not in environments(house)
    plan = first.folder.plan()
    assert plan.environment
    assert plan.environment.requirements[0].startswith(
        f"snare @ file://{house.project}/wheels/snare-2.5-py3-none-any.whl#sha256="
    )


@pytest.mark.usefixtures("uv")
def test_data_is_made_in_the_environment_and_what_is_rendered_builds_and_runs_it(house: House) -> None:
    text = (
        SPEC
        + "    output: out\n    data: {path: data, prepare: 'python -c \"import snare\" && touch $DATA_DIR/made'}\n"
    )
    house.write_spec(text)
    script = house.write("script", house.run("render").out)
    for word in ("build", "prepare", "worker.1"):
        command = house.command(str(script), word, program=("sh",), env={"PYTHONHOME": ""})
        out, err = command.communicate(timeout=PATIENCE_SECONDS)
        assert command.returncode == 0, err
    assert out == f"1.2 {environments(house)[0]}\n"
    assert house.exists("data/made")
    run = house.train(text)
    run.wait_for(Phase.FINISHED)
    assert len(house.numbers("calls")) == 2


def test_wrong_requirements_and_a_python_that_is_not_here_are_refused_before_anything_starts(house: House) -> None:
    house.write("requirements.txt", "numpy\nwhat is this\n")
    house.write_spec("run: 'true'\nenvironment:\n  requirements: requirements.txt\n")
    answer = house.run("train")
    assert answer.code == 2
    assert "drumline.yml:5: environment.requirements: in " in answer.err
    assert "requirements.txt, line 2: `what is this` is no requirement" in answer.err
    house.write_spec("run: 'true'\nenvironment: {python: 3.97}")
    for command in ("train", "check", "render"):
        answer = house.run(command)
        assert answer.code == 2
        assert "needs Python 3.97, which is not on this machine" in answer.err
    assert house.runs() == []


def test_who_asks_for_none_has_nothing_to_do_with_it(house: House) -> None:
    run = house.train("run: python -c 'import sys; print(sys.prefix)'")
    run.wait_for(Phase.FINISHED)
    assert said(run, "worker.0") == f"{sys.prefix}\n"
    assert environments(house) == []
    assert not Path(house.env["XDG_CACHE_HOME"], "drumline").exists()


@pytest.mark.usefixtures("uv")
def test_a_disk_that_is_full_fails_the_build_and_nothing_half_is_left(house: House) -> None:
    make_wheel(house.project / "wheels", "drumbeat", "1.3", code="#" * 3_000_000)
    small = house.path / "small"
    with mounted(small, "2M"):
        run = house.train(SPEC, env={"XDG_CACHE_HOME": str(small), "UV_CACHE_DIR": str(house.path / "uv")})
        run.wait_for(Phase.FAILED)
        assert run.cause.reason == "NotBuilt"
        assert "No space left on device" in said(run)
        assert kept(str(small / "drumline" / "environments")) == []


@pytest.mark.usefixtures("uv")
def test_an_environment_without_its_mark_is_built_again(house: House) -> None:
    house.train(SPEC).wait_for(Phase.FINISHED)
    (folder,) = environments(house)
    Path(folder, MARK).unlink()
    run = house.train(SPEC)
    run.wait_for(Phase.FINISHED)
    assert len(house.numbers("calls")) == 4
    assert is_ready(folder)
