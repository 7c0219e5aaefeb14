"""Replicas that are forked from a warm process run and end like others, and do not end the warm process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from drumline.engine.local.warm.client import warm_folder
from drumline.engine.local.warm.pool import list_warm_processes, stop_warm_processes
from drumline.engine.warm import WarmProcess
from drumline.plan.types import ReplicaId
from drumline.run.event import ReplicaStarted
from drumline.run.state import Phase
from drumline.runtime.unix import HEADER, connect
from integration.local.test_limits import find_limits
from scaffold.peers import PRIVATE, end, peers
from scaffold.processes import is_alive, kill_and_wait
from scaffold.waiting import wait_until
from scaffold.workspace import Run, Workspace

# Records its start, starts a child in its own session, and waits for the file with its exit code.
SCRIPT = """
import os, pathlib, subprocess, sys, time
here = pathlib.Path(os.environ["HERE"])
child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
with open(here / "children", "a") as file: file.write(f"{child.pid}\\n")
with open(here / "up", "a") as file: file.write(f"{os.getpid()}\\n")
while not (here / "go").exists(): time.sleep(0.01)
sys.exit(int((here / "go").read_text()))
"""
WARM = f"run: {sys.executable} wait.py\nwarm: true\ntimeouts: {{grace: 1}}\n"


def start(workspace: Workspace, spec: str = "roles: {worker: 2}", *, up: int = 2, warm: str = "true") -> Run:
    workspace.write("wait.py", SCRIPT)
    run = workspace.train(WARM.replace("true", warm) + spec)
    run.wait_started()
    workspace.wait_numbers("up", up)
    assert notes(run) == {"warm"}
    return run


def notes(run: Run) -> set[str]:
    return {event.note for event in run.events if isinstance(event, ReplicaStarted)}


def only(workspace: Workspace) -> WarmProcess:
    (found,) = list_warm_processes(workspace.home)
    return found


def go(workspace: Workspace, code: int = 0) -> None:
    workspace.write("go.part", str(code)).rename(workspace.project / "go")


def test_a_warm_process_is_stopped_by_another_path_of_its_folder(workspace: Workspace, tmp_path: Path) -> None:
    start(workspace)
    pid = only(workspace).pid
    (tmp_path / "link").symlink_to(workspace.home)
    assert stop_warm_processes(tmp_path / "link") == 1
    assert not is_alive(pid)
    go(workspace)


def test_a_killed_warm_process_ends_no_replica_and_loses_no_exit_status(workspace: Workspace) -> None:
    run = start(workspace)
    before = only(workspace).pid
    kill_and_wait(before)
    assert all(map(is_alive, workspace.numbers("up")))
    go(workspace, 3)
    run.wait_for(Phase.FAILED)
    assert {run.exit("worker.0").code, run.exit("worker.1").code} <= {3, None}
    assert run.cause.exit.code == 3
    wait_until(lambda: not any(map(is_alive, workspace.numbers("children"))))

    (workspace.project / "go").unlink()
    (workspace.project / "up").unlink()
    start(workspace)  # from another one
    assert only(workspace).pid != before
    go(workspace)


def test_replicas_start_cold_if_their_warm_process_dies_during_its_imports(
    workspace: Workspace,
) -> None:
    slow = workspace.project / "slow"
    slow.mkdir()
    (slow / "sluggish.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    workspace.write("wait.py", "print('started')")
    run = workspace.train(f"run: {sys.executable} wait.py\nwarm: {{import: [sluggish]}}", env={"PYTHONPATH": str(slow)})
    run.wait_for(Phase.FINISHED)
    assert notes(run) == {"cold: the warm process has ended"}
    assert run.log("worker.0") == b"started\n"


def test_a_module_that_cannot_be_imported_starts_replicas_cold(workspace: Workspace) -> None:
    workspace.write("wait.py", "print('started')")
    run = workspace.train(f"run: {sys.executable} wait.py\nwarm: {{import: [no_such_module]}}")
    run.wait_for(Phase.FINISHED)
    assert notes(run) == {"cold: ModuleNotFoundError: No module named 'no_such_module'"}


def test_a_killed_warm_replica_is_the_cause_and_its_children_are_ended(workspace: Workspace) -> None:
    run = start(workspace)
    os.kill(run.pid("worker.1"), signal.SIGKILL)
    run.wait_for(Phase.FAILED)
    assert (str(run.cause.replica), run.cause.exit.signal) == ("worker.1", signal.SIGKILL)
    assert not any(map(is_alive, workspace.numbers("children") + workspace.numbers("up")))


def test_a_killed_keeper_of_a_warm_replica_leaves_no_process(workspace: Workspace) -> None:
    run = start(workspace)
    kill_and_wait(run.keeper("worker.0"))
    run.wait_for(Phase.FAILED)
    assert run.cause.replica == ReplicaId("worker", 0)
    assert not run.cause.exit.seen
    assert not any(map(is_alive, workspace.numbers("children") + workspace.numbers("up")))
    assert only(workspace).replicas == 2


def test_a_new_supervisor_adopts_warm_replicas(workspace: Workspace) -> None:
    run = start(workspace)
    run.kill_supervisor()
    assert workspace.run("supervise", run.id).code == 0
    go(workspace)
    run.wait_for(Phase.FINISHED)
    assert [run.exit(f"worker.{index}").code for index in (0, 1)] == [0, 0]


def test_a_kill_does_not_wait_for_a_warm_process(workspace: Workspace) -> None:
    slow = workspace.project / "slow"
    slow.mkdir()
    (slow / "sluggish.py").write_text("import os, signal; open(os.environ['HERE'] + '/begun', 'w'); signal.pause()")
    workspace.write("wait.py", SCRIPT)
    run = workspace.train(f"run: {sys.executable} wait.py\nwarm: {{import: [sluggish]}}", env={"PYTHONPATH": str(slow)})
    wait_until(lambda: workspace.exists("begun"))
    assert workspace.run("kill", run.id).code == 0
    assert run.state.phase is Phase.KILLED
    assert not workspace.exists("up")


def test_a_restarted_run_is_forked_from_the_same_warm_process(workspace: Workspace) -> None:
    run = start(workspace, "roles: {worker: 2}\nrestart: 1")
    os.kill(run.pid("worker.0"), signal.SIGKILL)
    workspace.wait_numbers("up", 4)
    go(workspace)
    run.wait_for(Phase.FINISHED)
    assert only(workspace).replicas == 4


def test_a_warm_process_is_replaced_when_a_file_of_what_it_imported_changes(
    workspace: Workspace, tmp_path: Path
) -> None:
    python, module = make_environment(tmp_path, changing="WORD = 'before'")
    workspace.write("wait.py", "import changing; print(changing.WORD)")
    spec = f"run: {python} wait.py\nwarm: {{import: [changing]}}"
    first = workspace.train(spec)
    first.wait_for(Phase.FINISHED)
    before = only(workspace).pid
    module.write_text("WORD = 'afterwards'")
    second = workspace.train(spec)
    second.wait_for(Phase.FINISHED)
    assert notes(first) == notes(second) == {"warm"}
    assert [run.log("worker.0") for run in (first, second)] == [b"before\n", b"afterwards\n"]
    assert only(workspace).pid != before


def test_variables_that_an_import_sets_or_removes_are_as_after_a_cold_start(
    workspace: Workspace, tmp_path: Path
) -> None:
    python, _ = make_environment(
        tmp_path,
        setting="""
import os
os.environ["SET"] = "by an import"
os.environ.setdefault("WISHED", "by an import")
del os.environ["REMOVED"]
""",
    )
    names = ["SET", "WISHED", "REMOVED"]
    workspace.write("wait.py", f"import os, setting; print([os.environ.get(name) for name in {names}])")
    spec = f"run: {python} wait.py\nwarm: {{import: [setting]}}"
    env = {"WISHED": "before", "REMOVED": "before"}
    warm, cold = (workspace.train(spec, *words, env=env) for words in ([], ["--no-warm"]))
    for run in (warm, cold):
        run.wait_for(Phase.FINISHED)
    assert (notes(warm), notes(cold)) == ({"warm"}, {""})
    assert warm.log("worker.0") == cold.log("worker.0") == b"['by an import', 'before', None]\n"


def test_a_warm_process_that_is_not_kept_ends_with_its_run(workspace: Workspace) -> None:
    workspace.write("wait.py", "print('done')")
    run = workspace.train(f"run: {sys.executable} wait.py\nwarm: {{keep: 0}}")
    run.wait_for(Phase.FINISHED)
    assert notes(run) == {"warm"}
    wait_until(lambda: not list(warm_folder(workspace.home).iterdir()))


def test_drumline_warm_shows_and_stops_warm_processes(workspace: Workspace) -> None:
    run = start(workspace, warm="{import: [wave]}")
    (shown,) = json.loads(workspace.run("warm", "-o", "json").out)
    assert (shown["framework"], shown["modules"], shown["replicas"], shown["runs"]) == ("plain", ["wave"], 2, 1)
    assert shown["memory_bytes"] > 1 << 20
    head, row = workspace.run("warm").out.splitlines()
    assert head.split()[:2] == ["KEY", "IMPORTED"]
    assert row.startswith(f"{shown['key'][:8]}  plain, wave  ")
    assert row.endswith("in use by 1 run")
    assert workspace.run("warm", "stop", "unknown").code == 4
    assert workspace.run("warm", "stop", shown["key"][:6]).out == "stopped 1 warm process\n"
    assert not is_alive(shown["pid"])
    assert all(map(is_alive, workspace.numbers("up")))
    go(workspace)
    run.wait_for(Phase.FINISHED)
    assert workspace.run("warm").out.startswith("there is no warm process")


def test_with_no_warm_a_run_starts_no_warm_process(workspace: Workspace) -> None:
    workspace.write("wait.py", "print('done')")
    workspace.write_spec(f"run: {sys.executable} wait.py\nwarm: true")
    answer = workspace.run("train", "-d", "--no-warm")
    run = Run(workspace, answer.out.strip())
    run.wait_for(Phase.FINISHED)
    assert notes(run) == {""}
    assert not warm_folder(workspace.home).exists()


def test_a_warm_replica_keeps_its_memory_limit(workspace: Workspace) -> None:
    if find_limits() is None:
        pytest.skip("no memory limit can be kept here")
    workspace.write("wait.py", "x = bytearray(200 << 20)")
    run = workspace.train(f"run: {sys.executable} wait.py\nwarm: true\nresources: {{memory: 64MiB}}")
    run.wait_for(Phase.FAILED)
    assert notes(run) == {"warm"}
    assert run.cause.exit.out_of_memory
    assert is_alive(only(workspace).pid)


@pytest.mark.usefixtures("private_networks")
def test_only_the_warm_replica_and_not_the_warm_process_enters_a_private_network(
    workspace: Workspace, tmp_path: Path
) -> None:
    python, _ = make_environment(tmp_path, tensorflow="")
    run = peers(workspace, network=PRIVATE, python=str(python))
    assert notes(run) == {"warm"}
    network = Path("/proc/self/ns/net").readlink()
    assert Path(f"/proc/{only(workspace).pid}/ns/net").readlink() == network
    assert Path(f"/proc/{run.pid('worker.0')}/ns/net").readlink() != network
    end(run)
    run.wait_for(Phase.FINISHED)


def test_another_user_has_a_warm_process_of_their_own(workspace: Workspace, stranger: Workspace) -> None:
    run = start(workspace)
    for link in (warm_folder(workspace.home), *warm_folder(workspace.home).rglob("*")):
        assert link.stat().st_mode & 0o077 == 0
    assert stranger.run("warm", env={"DRUMLINE_HOME": str(workspace.home)}).out.startswith("there is no warm process")
    go(workspace)
    run.wait_for(Phase.FINISHED)


def test_memory_that_warm_replicas_share_is_counted_once(workspace: Workspace, tmp_path: Path) -> None:
    python, _ = make_environment(tmp_path, heavy="HELD = bytearray(b'x') * (300 << 20)")
    workspace.write("wait.py", SCRIPT)
    run = workspace.train(f"""
        run: {python} wait.py
        warm: {{import: [heavy]}}
        roles: {{worker: 3}}
        timeouts: {{grace: 1}}
    """)
    run.wait_started()
    workspace.wait_numbers("up", 3)
    assert notes(run) == {"warm"}
    (shown,) = json.loads(workspace.run("monitor", run.id, "--once", "-o", "json").out)
    used = [replica["memory_bytes"] for replica in shown["replicas"]]
    assert len(used) == 3
    assert sum(used) < 300 << 20  # each has its share of the memory that it shares with the warm process
    go(workspace)
    run.wait_for(Phase.FINISHED)


def make_environment(folder: Path, **modules: str) -> tuple[Path, Path]:
    """Make a virtual environment with these modules; return its Python, and the file of the first module."""
    environment = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    (site,) = environment.glob("lib/python*/site-packages")
    files = [site / f"{name}.py" for name in modules]
    for file, text in zip(files, modules.values(), strict=True):
        file.write_text(text)
    return environment / "bin" / "python", files[0]


def test_a_warm_process_survives_malformed_requests(workspace: Workspace) -> None:
    run = start(workspace, "roles: {worker: 1}", up=1)
    before = only(workspace)
    bodies = [b"", b"{", b"[]", b"7", b"{}", b'{"do": "start"}', b'{"do": "hello", "keep": "x"}', b"[" * 99999]
    bodies += [b'{"do": "start", "order": {"name": 1}, "script": {}}', b'{"do": "start", "order": [], "script": 5}']
    for length, body in [*((len(body), body) for body in bodies), (2**32 - 1, b"x"), (9, b"half")]:
        connection = connect(warm_folder(workspace.home) / before.key / "socket")
        assert connection
        with connection:
            connection.sendall(HEADER.pack(length) + body)
    assert only(workspace).replace(memory_bytes=None) == before.replace(memory_bytes=None)
    go(workspace)
    run.wait_for(Phase.FINISHED)
