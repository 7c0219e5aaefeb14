"""Another user of this machine plants files that drumline would execute, trust or write through."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from drumline.run.event import AttemptPlaced
from drumline.run.state import Phase
from drumline.runtime.unix import connect, listen
from scaffold.waiting import wait_until
from scaffold.workspace import Run, Workspace

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")

OTHER = 60_999
# Each command that reads the data folder, with the words that it needs.
COMMANDS = [
    ["train"], ["status"], ["status", "1"], ["logs", "1"], ["events", "1"], ["wait", "1"], ["kill", "1"], ["rm", "1"],
    ["resume", "1"], ["supervise", "1"], ["stacks", "1"], ["monitor", "--once"], ["monitor", "1", "--once"],
    ["inspect", "1", "true"], ["cp", "1:x", "."], ["tensorboard", "1"], ["drill", "1"], ["warm"], ["warm", "stop"],
    ["render"], ["doctor"],
]  # fmt: skip


def planted(workspace: Workspace) -> Path:
    """A failed run with a plan that another user has replaced by one that writes `executed`."""
    run = workspace.train("run: exit 1")
    run.wait_for(Phase.FAILED)
    plan = json.loads(run.folder.plan_file.read_text())
    plan["replicas"][0]["argv"] = ["touch", f"{workspace.project}/executed"]
    run.folder.plan_file.write_text(json.dumps(plan))
    return run.path


def refused_everywhere(workspace: Workspace, reason: str, commands: list[list[str]] = COMMANDS) -> None:
    workspace.write_spec("run: 'true'")
    for words, answer in zip(commands, workspace.run_in_turn(*commands), strict=True):
        assert (answer.code, answer.out) == (3, ""), (words, answer)
        error, hint = answer.err.splitlines()
        assert error.startswith("error: the folder "), words
        assert error.endswith(f" is not used, since others could have changed it: {reason}"), (words, error)
        assert hint.startswith("hint: set DRUMLINE_HOME to a folder that only you can write, or `chmod go-w` this one")
    assert not workspace.exists("executed")


def test_the_run_of_the_attack_is_resumed_if_all_its_files_belong_to_the_user(workspace: Workspace) -> None:
    planted(workspace)
    assert workspace.run("resume", "1").code == 0
    assert workspace.exists("executed")


def test_a_home_that_others_can_write_is_refused_by_every_command(workspace: Workspace) -> None:
    planted(workspace)
    workspace.home.chmod(0o777)
    refused_everywhere(workspace, f"{workspace.home} can be written by others (mode 0777)")
    workspace.home.chmod(0o700)


def test_a_home_that_belongs_to_another_user_is_refused_by_every_command_of_root_too(workspace: Workspace) -> None:
    planted(workspace)
    os.chown(workspace.home, OTHER, OTHER)
    refused_everywhere(workspace, f"{workspace.home} belongs to user {OTHER}")
    os.chown(workspace.home, 0, 0)


def test_a_home_in_a_folder_that_others_can_write_is_refused_by_every_command(workspace: Workspace) -> None:
    planted(workspace)
    workspace.path.chmod(0o777)
    refused_everywhere(workspace, f"{workspace.path} can be written by others (mode 0777)")
    workspace.path.chmod(0o700)


def test_a_run_that_another_user_has_planted_is_refused_by_every_command_that_names_it(workspace: Workspace) -> None:
    path = planted(workspace)
    commands = [words for words in COMMANDS if "1" in words and words[0] not in ("rm", "drill")]
    for part in (path, path / "plan.json", path / "launch.json", path / "events.jsonl"):
        os.chown(part, OTHER, OTHER)
        refused_everywhere(workspace, f"{part} belongs to user {OTHER}", commands)
        os.chown(part, 0, 0)
    assert workspace.run("rm", "1").code == 0


def test_a_supervisor_refuses_a_run_that_changed_owner_after_the_check_of_the_command(workspace: Workspace) -> None:
    path = planted(workspace)
    os.chown(path / "plan.json", OTHER, OTHER)
    told = subprocess.run(
        [sys.executable, "-c", SUPERVISE, str(path)], env=workspace.env, capture_output=True, text=True, check=True
    )
    assert f"plan.json belongs to user {OTHER}" in told.stdout
    assert not workspace.exists("executed")


SUPERVISE = """
import sys
from pathlib import Path
from drumline.errors import EngineError
from drumline.run.event import ResumeRequested
from drumline.store.folder import RunFolder
from drumline.supervise.detach import start_supervisor
try:
    start_supervisor(RunFolder(Path(sys.argv[1])), asked=ResumeRequested())
except EngineError as error:
    print(error.message)
"""


def test_root_with_the_home_of_a_user_gets_a_hint_to_set_its_own_folder(stranger: Workspace) -> None:
    """This happens with a `sudo` that keeps HOME: root would execute files that the user planted there."""
    stranger.train("run: 'true'").wait_for(Phase.FINISHED)
    user, stranger.command_prefix = stranger.command_prefix, ()
    refused_everywhere(stranger, f"{stranger.path.parent} belongs to user {stranger.path.stat().st_uid}")
    fresh = stranger.path / "fresh"
    answer = stranger.run("train", env={"DRUMLINE_HOME": str(fresh)})
    assert (answer.code, fresh.exists()) == (3, False)
    stranger.command_prefix = user


@pytest.mark.parametrize("name", ["last-run", "index.sqlite", "ledger/lock", "runs"])
def test_a_link_that_was_planted_in_a_home_is_not_written_through(workspace: Workspace, name: str) -> None:
    workspace.train("run: 'true'").wait_for(Phase.FINISHED)
    precious = workspace.path / "precious"
    precious.write_text("precious")
    part = workspace.home / name
    if part.is_dir():
        part.rename(workspace.path / "runs-of-others")
        (workspace.path / "runs-of-others").chmod(0o777)
        part.symlink_to(workspace.path / "runs-of-others")
    else:
        part.parent.mkdir(exist_ok=True)
        part.unlink(missing_ok=True)
        part.symlink_to(precious)
    workspace.write_spec("run: 'true'\nresources: {cpus: 1}")
    answer = workspace.run("train")
    assert answer.code in (1, 3), answer
    assert answer.err
    assert precious.read_text() == "precious"


def test_all_that_runs_leave_is_private_whatever_the_umask(workspace: Workspace) -> None:
    """Failed, restarted, killed and warm runs; an exception kept as data, metrics, stacks, claims, TensorBoard."""
    workspace.command_prefix = ("sh", "-c", 'umask 000; exec "$@"', "sh")
    del workspace.env["DRUMLINE_HOME"], workspace.env["XDG_CACHE_HOME"]
    workspace.env |= {"HOME": str(workspace.path / "user"), "PYTHONPATH": str(Path(__file__).parents[3] / "src")}
    (workspace.path / "user").mkdir(mode=0o700)
    workspace.home = workspace.path / "user" / ".local" / "share" / "drumline"
    workspace.write("fail.py", FAILS)
    spec = f"run: {sys.executable} fail.py\nrestart: 1\nresources: {{cpus: 0.1, memory: 200MiB}}\ntensorboard: true\n"
    for warm in ("false", "true"):
        workspace.train(f"{spec}warm: {warm}").wait_for(Phase.FAILED)
    run = workspace.train("run: until [ -e $HERE/go ]; do sleep 0.05; done\nresources: {cpus: 0.1}")
    run.wait_started()
    assert workspace.run("monitor", "--once").code == 0
    workspace.run("stacks", run.id)
    assert workspace.run("kill", run.id).code == 0
    assert workspace.run("status").code == 0
    assert workspace.run("warm", "stop").code == 0
    wait_until(lambda: not workspace.processes())
    names = {path.name for path in workspace.home.rglob("*")}
    assert {"error", "report", "log", "keeper", "plan.json", "supervisor.log", "last-run", "index.sqlite"} <= names
    for path in [*(workspace.path / "user").rglob("*")]:
        if "output" not in path.parts:
            assert stat.S_IMODE(path.lstat().st_mode) in (0o700, 0o600), path


FAILS = """
from drumline import runtime
runtime.record_errors()
runtime.report(step=1, loss=0.5)
raise ValueError("bad row")
"""


def test_nothing_is_sent_to_a_socket_of_another_user(tmp_path: Path) -> None:
    with listen(tmp_path / "control") as listener:
        with acting_as(OTHER):
            listener.listen()  # from now on the kernel reports the other user as its owner
        with pytest.raises(PermissionError, match="the socket belongs to a process of another user"):
            connect(tmp_path / "control")


def test_a_supervisor_answers_no_other_user(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    run = workspace.train("run: until [ -e $HERE/go ]; do sleep 0.05; done")
    run.wait_started()
    own = connect(run.folder.socket_file)
    assert own
    with own, socket.socket(socket.AF_UNIX) as theirs:
        own.sendall(b'{"do": "watch"}\n')
        assert own.recv(99) == b'{"ok": true}\n'
        monkeypatch.chdir(run.path)
        run.path.chmod(0o711)  # as if the modes of folders and files allowed access
        run.folder.socket_file.chmod(0o666)
        with acting_as(OTHER), suppress(ConnectionError):
            theirs.connect("control")
            theirs.sendall(b'{"do": "stop", "force": true}\n')
        with suppress(ConnectionError):
            assert theirs.recv(99) == b""
    assert run.state.phase is Phase.RUNNING
    workspace.write("go", "")
    run.wait_for(Phase.FINISHED)


@contextmanager
def acting_as(user: int) -> Iterator[None]:
    """Act as another user during the block, for the kernel and for processes that ask it for the peer's user."""
    os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(0)


def test_ports_that_another_user_claims_by_name_are_not_used(workspace: Workspace) -> None:
    first = workspace.train("run: 'true'")
    first.wait_for(Phase.FINISHED)
    port = port_of(first)
    names = {number: socket.socket(socket.AF_UNIX) for number in range(port, port + 200)}
    try:
        for number, name in names.items():
            with suppress(OSError):  # a run of another test has claimed it
                name.bind(f"\0drumline-port-{number}")
        held = {number for number, name in names.items() if name.getsockname()}
        second = workspace.train("run: 'true'")
        second.wait_for(Phase.FINISHED)
    finally:
        for name in names.values():
            name.close()
    assert len(held) > 100
    assert port_of(second) not in held


def port_of(run: Run) -> int:
    placed = next(event for event in run.events if isinstance(event, AttemptPlaced))
    return int(placed.addresses[0].rpartition(":")[2])
