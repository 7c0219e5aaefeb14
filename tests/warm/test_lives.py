"""Replicas from a warm process live and die as others do, and the warm process with nobody."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from drumline.engine.local.warm.client import warm_folder
from drumline.engine.local.warm.known import known_warm_processes
from drumline.engine.warm import WarmProcess
from drumline.plan.types import ReplicaId
from drumline.run.event import ReplicaStarted
from drumline.run.state import Phase
from drumline.runtime.unix import HEADER, connect
from integration.local.peers import PRIVATE, end, peers
from integration.local.runs import House, Run, kill_and_wait, lives, wait_until
from integration.local.test_limits import find_limits

# Says that it is up, leaves a child in a session of its own, and waits to be told how to end.
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


def start(house: House, spec: str = "roles: {worker: 2}", *, up: int = 2, warm: str = "true") -> Run:
    house.write("wait.py", SCRIPT)
    run = house.train(WARM.replace("true", warm) + spec)
    run.wait_started()
    house.wait_numbers("up", up)
    assert notes(run) == {"warm"}
    return run


def notes(run: Run) -> set[str]:
    return {event.note for event in run.events if isinstance(event, ReplicaStarted)}


def only(house: House) -> WarmProcess:
    (found,) = known_warm_processes(house.home)
    return found


def go(house: House, code: int = 0) -> None:
    house.write("go.part", str(code)).rename(house.project / "go")


def test_a_killed_warm_process_takes_no_replica_and_no_status_along(house: House) -> None:
    run = start(house)
    before = only(house).pid
    kill_and_wait(before)
    assert all(map(lives, house.numbers("up")))
    go(house, 3)
    run.wait_for(Phase.FAILED)
    assert {run.exit("worker.0").code, run.exit("worker.1").code} <= {3, None}
    assert run.cause.exit.code == 3
    wait_until(lambda: not any(map(lives, house.numbers("children"))))

    (house.project / "go").unlink()
    (house.project / "up").unlink()
    start(house)  # from another one
    assert only(house).pid != before
    go(house)


def test_a_warm_process_that_dies_while_it_imports_leaves_its_replicas_to_start_by_themselves(house: House) -> None:
    slow = house.project / "slow"
    slow.mkdir()
    (slow / "sluggish.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    house.write("wait.py", "print('started')")
    run = house.train(f"run: {sys.executable} wait.py\nwarm: {{import: [sluggish]}}", env={"PYTHONPATH": str(slow)})
    run.wait_for(Phase.FINISHED)
    assert notes(run) == {"cold: the warm process has ended"}
    assert run.log("worker.0") == b"started\n"


def test_what_cannot_be_imported_is_no_reason_to_fail(house: House) -> None:
    house.write("wait.py", "print('started')")
    run = house.train(f"run: {sys.executable} wait.py\nwarm: {{import: [no_such_module]}}")
    run.wait_for(Phase.FINISHED)
    assert notes(run) == {"cold: ModuleNotFoundError: No module named 'no_such_module'"}


def test_a_killed_replica_is_named_and_its_children_go_with_it(house: House) -> None:
    run = start(house)
    os.kill(run.pid("worker.1"), signal.SIGKILL)
    run.wait_for(Phase.FAILED)
    assert (str(run.cause.replica), run.cause.exit.signal) == ("worker.1", signal.SIGKILL)
    assert not any(map(lives, house.numbers("children") + house.numbers("up")))


def test_when_a_keeper_is_killed_nothing_of_its_replica_is_left(house: House) -> None:
    run = start(house)
    kill_and_wait(run.keeper("worker.0"))
    run.wait_for(Phase.FAILED)
    assert run.cause.replica == ReplicaId("worker", 0)
    assert not run.cause.exit.seen
    assert not any(map(lives, house.numbers("children") + house.numbers("up")))
    assert only(house).replicas == 2


def test_a_supervisor_that_comes_back_finds_them(house: House) -> None:
    run = start(house)
    run.kill_supervisor()
    assert house.run("supervise", run.id).code == 0
    go(house)
    run.wait_for(Phase.FINISHED)
    assert [run.exit(f"worker.{index}").code for index in (0, 1)] == [0, 0]


def test_whoever_kills_a_run_that_waits_for_a_warm_process_need_not_wait(house: House) -> None:
    slow = house.project / "slow"
    slow.mkdir()
    (slow / "sluggish.py").write_text("import os, signal; open(os.environ['HERE'] + '/begun', 'w'); signal.pause()")
    house.write("wait.py", SCRIPT)
    run = house.train(f"run: {sys.executable} wait.py\nwarm: {{import: [sluggish]}}", env={"PYTHONPATH": str(slow)})
    wait_until(lambda: house.exists("begun"))
    assert house.run("kill", run.id).code == 0
    assert run.state.phase is Phase.KILLED
    assert not house.exists("up")


def test_a_line_that_starts_again_is_forked_from_the_same_process(house: House) -> None:
    run = start(house, "roles: {worker: 2}\nrestart: 1")
    os.kill(run.pid("worker.0"), signal.SIGKILL)
    house.wait_numbers("up", 4)
    go(house)
    run.wait_for(Phase.FINISHED)
    assert only(house).replicas == 4


def test_a_warm_process_is_replaced_when_a_file_of_what_it_imported_changes(house: House, tmp_path: Path) -> None:
    python, module = make_environment(tmp_path, changing="WORD = 'before'")
    house.write("wait.py", "import changing; print(changing.WORD)")
    spec = f"run: {python} wait.py\nwarm: {{import: [changing]}}"
    first = house.train(spec)
    first.wait_for(Phase.FINISHED)
    before = only(house).pid
    module.write_text("WORD = 'afterwards'")
    second = house.train(spec)
    second.wait_for(Phase.FINISHED)
    assert notes(first) == notes(second) == {"warm"}
    assert [run.log("worker.0") for run in (first, second)] == [b"before\n", b"afterwards\n"]
    assert only(house).pid != before


def test_variables_that_an_import_sets_or_removes_are_as_after_a_cold_start(house: House, tmp_path: Path) -> None:
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
    house.write("wait.py", f"import os, setting; print([os.environ.get(name) for name in {names}])")
    spec = f"run: {python} wait.py\nwarm: {{import: [setting]}}"
    env = {"WISHED": "before", "REMOVED": "before"}
    warm, cold = (house.train(spec, *words, env=env) for words in ([], ["--no-warm"]))
    for run in (warm, cold):
        run.wait_for(Phase.FINISHED)
    assert (notes(warm), notes(cold)) == ({"warm"}, {""})
    assert warm.log("worker.0") == cold.log("worker.0") == b"['by an import', 'before', None]\n"


def test_a_warm_process_that_is_not_kept_ends_with_its_run(house: House) -> None:
    house.write("wait.py", "print('done')")
    run = house.train(f"run: {sys.executable} wait.py\nwarm: {{keep: 0}}")
    run.wait_for(Phase.FINISHED)
    assert notes(run) == {"warm"}
    wait_until(lambda: not list(warm_folder(house.home).iterdir()))


def test_the_command_shows_and_ends_what_is_warm(house: House) -> None:
    run = start(house, warm="{import: [wave]}")
    (shown,) = json.loads(house.run("warm", "-o", "json").out)
    assert (shown["framework"], shown["modules"], shown["replicas"], shown["runs"]) == ("plain", ["wave"], 2, 1)
    assert shown["memory_bytes"] > 1 << 20
    head, row = house.run("warm").out.splitlines()
    assert head.split()[:2] == ["KEY", "IMPORTED"]
    assert row.startswith(f"{shown['key'][:8]}  plain, wave  ")
    assert row.endswith("in use by 1 run")
    assert house.run("warm", "stop", "nobody").code == 4
    assert house.run("warm", "stop", shown["key"][:6]).out == "ended 1 warm process\n"
    assert not lives(shown["pid"])
    assert all(map(lives, house.numbers("up")))
    go(house)
    run.wait_for(Phase.FINISHED)
    assert house.run("warm").out.startswith("there is no warm process")


def test_without_warm_nothing_is_warm(house: House) -> None:
    house.write("wait.py", "print('done')")
    house.write_spec(f"run: {sys.executable} wait.py\nwarm: true")
    answer = house.run("train", "-d", "--no-warm")
    run = Run(house, answer.out.strip())
    run.wait_for(Phase.FINISHED)
    assert notes(run) == {""}
    assert not warm_folder(house.home).exists()


def test_a_limit_of_memory_is_kept(house: House) -> None:
    if find_limits() is None:
        pytest.skip("no memory limit can be kept here")
    house.write("wait.py", "x = bytearray(200 << 20)")
    run = house.train(f"run: {sys.executable} wait.py\nwarm: true\nresources: {{memory: 64MiB}}")
    run.wait_for(Phase.FAILED)
    assert notes(run) == {"warm"}
    assert run.cause.exit.out_of_memory
    assert lives(only(house).pid)


@pytest.mark.usefixtures("private_networks")
def test_a_private_network_is_entered_by_the_replica_alone(house: House, tmp_path: Path) -> None:
    python, _ = make_environment(tmp_path, tensorflow="")
    run = peers(house, network=PRIVATE, python=str(python))
    assert notes(run) == {"warm"}
    network = Path("/proc/self/ns/net").readlink()
    assert Path(f"/proc/{only(house).pid}/ns/net").readlink() == network
    assert Path(f"/proc/{run.pid('worker.0')}/ns/net").readlink() != network
    end(run)
    run.wait_for(Phase.FINISHED)


def test_another_user_has_a_warm_process_of_their_own(house: House, stranger: House) -> None:
    run = start(house)
    for link in (warm_folder(house.home), *warm_folder(house.home).rglob("*")):
        assert link.stat().st_mode & 0o077 == 0
    assert stranger.run("warm", env={"DRUMLINE_HOME": str(house.home)}).out.startswith("there is no warm process")
    go(house)
    run.wait_for(Phase.FINISHED)


def test_memory_that_is_shared_is_not_counted_twice(house: House, tmp_path: Path) -> None:
    python, _ = make_environment(tmp_path, heavy="HELD = bytearray(b'x') * (300 << 20)")
    house.write("wait.py", SCRIPT)
    run = house.train(f"""
        run: {python} wait.py
        warm: {{import: [heavy]}}
        roles: {{worker: 3}}
        timeouts: {{grace: 1}}
    """)
    run.wait_started()
    house.wait_numbers("up", 3)
    assert notes(run) == {"warm"}
    (shown,) = json.loads(house.run("monitor", run.id, "--once", "-o", "json").out)
    used = [replica["memory_bytes"] for replica in shown["replicas"]]
    assert len(used) == 3
    assert sum(used) < 300 << 20  # each has its share of what the warm process holds with them
    go(house)
    run.wait_for(Phase.FINISHED)


def make_environment(folder: Path, **modules: str) -> tuple[Path, Path]:
    """A virtual environment with these modules; return its Python, and the file of the first of them."""
    environment = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    (site,) = environment.glob("lib/python*/site-packages")
    files = [site / f"{name}.py" for name in modules]
    for file, text in zip(files, modules.values(), strict=True):
        file.write_text(text)
    return environment / "bin" / "python", files[0]


def test_a_warm_process_outlives_whoever_talks_nonsense_to_it(house: House) -> None:
    run = start(house, "roles: {worker: 1}", up=1)
    before = only(house)
    bodies = [b"", b"{", b"[]", b"7", b"{}", b'{"do": "start"}', b'{"do": "hello", "keep": "x"}', b"[" * 99999]
    bodies += [b'{"do": "start", "order": {"name": 1}, "script": {}}', b'{"do": "start", "order": [], "script": 5}']
    for length, body in [*((len(body), body) for body in bodies), (2**32 - 1, b"x"), (9, b"half")]:
        connection = connect(warm_folder(house.home) / before.key / "socket")
        assert connection
        with connection:
            connection.sendall(HEADER.pack(length) + body)
    assert only(house).replace(memory_bytes=None) == before.replace(memory_bytes=None)
    go(house)
    run.wait_for(Phase.FINISHED)
