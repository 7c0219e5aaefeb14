"""TensorBoard of real runs: found, served, adopted, and ended with them; and `drumline tensorboard` for ended runs."""

from __future__ import annotations

import os
import shutil
import signal
import socket
from collections.abc import Mapping
from pathlib import Path

import pytest

from drumline.run.state import Phase
from scaffold.environments import find_python
from scaffold.fake_tensorboard import write_python, write_wheel
from scaffold.processes import is_alive, kill_and_wait
from scaffold.summaries import read_scalars, write_scalars
from scaffold.waiting import PATIENCE_SECONDS, wait_until
from scaffold.workspace import Run, Workspace

WAIT = "until [ -e $HERE/go ]; do sleep 0.05; done"
SHOWN = [(0, 3.0), (1, 2.0), (2, 1.0)]
LOSSES = [value for _, value in SHOWN]


@pytest.fixture
def board(workspace: Workspace) -> Workspace:
    """Return a workspace in which TensorBoard is installed."""
    workspace.env["DRUMLINE_TENSORBOARD"] = str(find_python("tensorboard"))
    return workspace


@pytest.fixture
def quick(workspace: Workspace) -> Workspace:
    """Return a workspace with a fake TensorBoard, which starts at once."""
    workspace.env["DRUMLINE_TENSORBOARD"] = str(write_python(workspace.path))
    return workspace


def address_of(run: Run) -> str:
    return wait_until(lambda: run.state.tensorboard_address)


def scalars(address: str, *, points: int = len(SHOWN)) -> Mapping[str, object]:
    """Return what TensorBoard shows once it has read so many points: it reads files in pieces and with delays."""

    def shown() -> Mapping[str, object] | None:
        found = read_scalars(address, "loss")
        return found if sum(map(len, found.values())) == points else None

    return wait_until(shown)


def listeners(port: int) -> set[str]:
    """Return the addresses at which a process listens on a port, in the kernel's format."""
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()]
    return {words[1].split(":")[0] for words in lines if words[1].endswith(f":{port:04X}") and words[3] == "0A"}


def test_tensorboard_shows_summaries_across_attempts_and_supervisors(board: Workspace) -> None:
    board.write("tensorboard.py", "raise SystemExit('not this one')")
    run = board.train(f"""
        framework: tensorflow
        run: "echo $$ >> $HERE/workers; {WAIT}"
        restart: 1
    """)
    run.wait_for(Phase.RUNNING)
    assert run.state.tensorboard is None
    write_scalars(run.path / "output" / "summaries" / "train", "loss", LOSSES)
    address = address_of(run)
    assert scalars(address) == {"summaries/train": SHOWN}
    assert listeners(int(address.strip("/").rpartition(":")[2])) == {"0100007F"}, "on loopback alone"
    assert f"\nTensorBoard: {address}\n" in board.run("status", run.id).out
    assert "TensorBoard 2." in board.run("logs", f"{run.id}.tensorboard").out
    assert board.run("logs", run.id).out.count("TensorBoard") == 1
    assert "tensorboard" not in board.run("monitor", "--once", run.id).out
    assert f"{run.id}.tensorboard" in board.run("monitor", "--once", f"{run.id}.tensorboard").out
    assert f"{run.id}.tensorboard answers at {address}" in board.run("events", f"{run.id}.tensorboard").out
    pid = run.pid("tensorboard")

    run.kill_supervisor()
    assert board.run("supervise", run.id).code == 0
    kill_and_wait(board.wait_numbers("workers", 1)[0])
    board.wait_numbers("workers", 2)
    wait_until(lambda: (run.state.attempt, run.state.phase) == (1, Phase.RUNNING))
    assert run.state.tensorboard_address == address
    assert scalars(address) == {"summaries/train": SHOWN}

    board.write("go", "")
    state = run.wait_for(Phase.FINISHED)
    assert state.tensorboard
    assert (state.tensorboard.phase, state.warnings) == (Phase.FINISHED, ())
    assert run.pid("tensorboard") == pid
    assert not is_alive(pid)
    assert listeners(int(address.strip("/").rpartition(":")[2])) == set()
    assert "TensorBoard 2." in board.run("logs", f"{run.id}.tensorboard").out
    assert "TensorBoard 2." not in board.run("logs", f"{run.id}.tensorboard", "--attempt", "1").out


def test_a_tensorboard_of_the_spec_is_served_from_the_start_and_train_prints_its_address_once(quick: Workspace) -> None:
    quick.write_spec("""
        tensorboard: true
        run: until grep -q TensorBoardServed $DRUMLINE_HOME/runs/1/events.jsonl; do sleep 0.05; done
    """)
    shown = quick.run("train")
    assert shown.code == 0, shown.err
    assert shown.out.count("] TensorBoard: http://127.0.0.1:") == 1
    assert "1.tensorboard" not in shown.out


def test_a_killed_tensorboard_gives_one_warning_and_the_run_continues(quick: Workspace) -> None:
    run = quick.train(f"tensorboard: true\nrun: '{WAIT}'")
    address_of(run)
    kill_and_wait(run.pid("tensorboard"))
    (warning,) = wait_until(lambda: run.state.warnings)
    assert "killed by signal 9 (KILL)" in warning
    assert f"`drumline logs {run.id}.tensorboard`" in warning
    quick.write("go", "")
    assert run.wait_for(Phase.FINISHED).warnings == (warning,)
    assert warning in quick.run("status", run.id).out


def test_kill_of_a_run_ends_its_tensorboard(quick: Workspace) -> None:
    run = quick.train(f"tensorboard: true\nrun: '{WAIT}'")
    address_of(run)
    pid = run.pid("tensorboard")
    run.kill_supervisor()
    assert is_alive(pid)
    assert quick.run("kill", "--force", run.id).code == 0
    run.wait_for(Phase.KILLED)
    assert not is_alive(pid)


def test_a_tensorboard_without_its_project_folder_is_adopted_and_ended_with_its_run(quick: Workspace) -> None:
    (quick.project / "work").mkdir()
    run = quick.train("tensorboard: true\nworkdir: work\nrun: until [ -e $HERE/go ]; do sleep 0.05; done")
    address = address_of(run)
    run.kill_supervisor()
    (run.trace_dir("tensorboard") / "address").unlink()
    shutil.rmtree(quick.project / "work")
    assert quick.run("supervise", run.id).code == 0
    quick.run("wait", run.id)
    assert run.trace("tensorboard").over
    assert listeners(int(address.strip("/").rpartition(":")[2])) == set()


def test_a_missing_tensorboard_is_a_warning_with_the_command_that_installs_it(workspace: Workspace) -> None:
    run = workspace.train(f"tensorboard: true\nrun: '{WAIT}'")
    (warning,) = wait_until(lambda: run.state.warnings)
    assert "`pip install tensorboard`" in warning
    workspace.write("go", "")
    run.wait_for(Phase.FINISHED)


@pytest.fixture
def offline(workspace: Workspace, tmp_path: Path) -> Workspace:
    """Return a workspace in which pip can install only the fake TensorBoard, and nothing is installed yet."""
    (tmp_path / "wheels").mkdir()
    workspace.env |= {
        "DRUMLINE_TENSORBOARD": "",
        "PIP_NO_INDEX": "1",
        "UV_OFFLINE": "1",  # uv uses an index unless an option forbids it
        "PIP_FIND_LINKS": str(tmp_path / "wheels"),
    }
    return workspace


def environments(workspace: Workspace) -> list[Path]:
    return list(Path(workspace.env["XDG_CACHE_HOME"], "drumline", "environments").glob("*/bin/python"))


def test_an_environment_for_tensorboard_is_built_while_the_training_runs(offline: Workspace) -> None:
    write_wheel(Path(offline.env["PIP_FIND_LINKS"]))
    run = offline.train(f"tensorboard: true\nrun: '{WAIT}'")
    run.wait_for(Phase.RUNNING)
    address_of(run)
    (python,) = environments(offline)
    assert f"TensorBoard by {python}".encode() in run.log("tensorboard")
    offline.write("go", "")
    run.wait_for(Phase.FINISHED)
    again = offline.train("tensorboard: true\nrun: until grep -q Served $DRUMLINE_HOME/runs/2/events.jsonl; do :; done")
    again.wait_for(Phase.FINISHED)
    assert b"building" not in again.log("tensorboard")


def test_a_run_that_ends_during_the_build_for_tensorboard_leaves_no_environment(offline: Workspace) -> None:
    run = offline.train("""
        tensorboard: true
        run: until grep -q building $DRUMLINE_HOME/runs/1/attempts/0/tensorboard/log; do sleep 0.05; done
    """)
    run.wait_for(Phase.FINISHED)
    assert environments(offline) == []


def test_if_no_environment_can_be_built_tensorboard_runs_with_the_python_of_the_run(offline: Workspace) -> None:
    python = find_python("tensorboard")
    wait = "import os, time\\nwhile not os.path.exists(os.environ['HERE'] + '/go'): time.sleep(0.01)"
    seen = os.path.relpath(python, offline.project)
    run = offline.train(f'tensorboard: true\nrun: {{argv: ["{seen}", "-c", "{wait}"]}}')
    write_scalars(run.path / "output", "loss", LOSSES)
    assert scalars(address_of(run)) == {".": SHOWN}
    assert f"TensorBoard by {python}".encode() in run.log("tensorboard")
    offline.write("go", "")
    run.wait_for(Phase.FINISHED)


# --- drumline tensorboard -------------------------------------------------------------------------------------------


def test_the_tensorboard_command_shows_several_finished_runs_until_it_is_interrupted(
    board: Workspace, tmp_path: Path
) -> None:
    (tmp_path / "tmp").mkdir()
    board.env["TMPDIR"] = str(tmp_path / "tmp")
    for output in ("", "output: elsewhere, and further"):
        run = board.train(f"run: 'true'\n{output}")
        run.wait_for(Phase.FINISHED)
    write_scalars(board.home / "runs" / "1" / "output" / "summaries", "loss", LOSSES)
    write_scalars(board.project / "elsewhere, and further", "loss", LOSSES[:1])
    with board.command("tensorboard", "1", "2", "1") as command:
        assert command.stdout
        words, _, address = command.stdout.readline().strip().partition(" ")
        assert words == "TensorBoard:"
        assert scalars(address, points=4) == {"1/summaries": SHOWN, "2": SHOWN[:1]}
        assert listeners(int(address.strip("/").rpartition(":")[2])) == {"0100007F"}
        command.send_signal(signal.SIGINT)
        _, said = command.communicate(timeout=PATIENCE_SECONDS)
    assert command.returncode == 0, said
    assert list((tmp_path / "tmp").iterdir()) == []


def test_runs_that_tensorboard_cannot_show_are_refused(board: Workspace) -> None:
    run = board.train("run: 'true'")
    run.wait_for(Phase.FINISHED)
    nothing = board.run("tensorboard", "1")
    assert (nothing.code, "run 1 has written no summaries below" in nothing.err) == (2, True)
    missing = board.run("tensorboard", "7")
    assert (missing.code, "there is no run 7" in missing.err) == (4, True)
    part = board.run("tensorboard", "1.worker.0")
    assert (part.code, "only whole runs" in part.err) == (2, True)
    write_scalars(run.path / "output", "loss", LOSSES)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        answer = board.run("tensorboard", "1", "--port", str(port))
    assert (answer.code, f"port {port} is taken" in answer.err) == (2, True)
    without = board.run("tensorboard", "1", env={"DRUMLINE_TENSORBOARD": "/nowhere"})
    assert (without.code, "TensorBoard was not found" in without.err) == (3, True)


def test_the_server_of_a_killed_tensorboard_command_ends(quick: Workspace) -> None:
    run = quick.train("run: 'true'")
    run.wait_for(Phase.FINISHED)
    write_scalars(run.path / "output", "loss", LOSSES)
    with quick.command("tensorboard", "1", env={"TMPDIR": str(quick.path)}) as command:
        assert command.stdout
        assert command.stdout.readline().startswith("TensorBoard: ")
        os.kill(command.pid, signal.SIGKILL)
    assert command.returncode == -signal.SIGKILL
    wait_until(lambda: not quick.processes())
