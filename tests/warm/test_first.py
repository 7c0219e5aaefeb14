"""A first launch on a machine with free cores starts cold, while a warm process for later launches is started."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import NamedTuple

import pytest

from drumline.engine.local.warm.client import PREPARING, warm_folder
from drumline.engine.local.warm.pool import list_warm_processes
from drumline.engine.warm import WarmProcess
from drumline.run.event import ReplicaStarted
from drumline.run.state import Phase
from scaffold.processes import is_alive, kill_and_wait
from scaffold.waiting import wait_until
from scaffold.workspace import Run, Workspace
from warm.test_processes import make_environment

pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="no core is to spare")

# The module that a warm process imports: the import ends when a file exists.
GATED = "import os, time\nwhile not os.path.exists(os.environ['HERE'] + '/gate'): time.sleep(0.01)\n"
# A replica prints its nice value, and waits while the file `wait` exists.
SCRIPT = """
import os, time
print(os.getpriority(os.PRIO_PROCESS, 0), flush=True)
here = os.environ["HERE"]
with open(here + "/up", "a") as file: file.write(f"{os.getpid()}\\n")
while os.path.exists(here + "/wait"): time.sleep(0.01)
"""


class Place(NamedTuple):
    """A workspace with two cores for one replica, and the environment that its warm process imports from."""

    workspace: Workspace
    spec: str
    module: Path

    def train(self, more: str = "") -> Run:
        return self.workspace.train(self.spec + more)

    def train_to_the_end(self) -> tuple[Run, str]:
        run = self.train()
        run.wait_for(Phase.FINISHED)
        (note,) = notes(run)
        return run, note

    def open_gate(self) -> None:
        """Let the warm process finish its import, and wait until it has."""
        self.workspace.write("gate", "")
        wait_until(lambda: [known.ready for known in list_warm_processes(self.workspace.home)] == [True])

    @property
    def known(self) -> WarmProcess:
        (found,) = wait_until(lambda: list(list_warm_processes(self.workspace.home)))
        return found


@pytest.fixture
def place(workspace: Workspace, tmp_path: Path, scarce_cores: None) -> Place:
    del scarce_cores  # this fixture has to run before
    workspace.cores = 2
    python, module = make_environment(tmp_path, gated=GATED)
    workspace.write("train.py", SCRIPT)
    return Place(workspace, f"run: {python} train.py\nwarm: {{import: [gated]}}\n", module)


def notes(run: Run) -> list[str]:
    return [event.note for event in run.events if isinstance(event, ReplicaStarted)]


def test_launches_are_cold_until_the_warm_process_is_ready_and_warm_afterwards(place: Place) -> None:
    first, note = place.train_to_the_end()
    assert note == f"cold: {PREPARING}"
    pid = place.known.pid
    assert place.train_to_the_end()[1] == f"cold: {PREPARING}"
    assert place.known.pid == pid
    place.open_gate()
    following, note = place.train_to_the_end()
    assert (note, place.known.pid) == ("warm", pid)
    assert following.log("worker.0") == first.log("worker.0")


def test_a_warm_process_has_a_low_priority_only_until_it_is_ready(place: Place) -> None:
    place.train_to_the_end()
    pid = place.known.pid
    if os.geteuid() and not Path(f"/proc/{pid}/autogroup").exists():
        pytest.skip("no priority can be raised again here")
    wait_until(lambda: is_low(pid))
    place.open_gate()
    wait_until(lambda: not is_low(pid))
    assert os.getpriority(os.PRIO_PROCESS, pid) == os.getpriority(os.PRIO_PROCESS, 0)


def is_low(pid: int) -> bool:
    group = Path(f"/proc/{pid}/autogroup")
    return os.getpriority(os.PRIO_PROCESS, pid) == 19 or (group.exists() and "nice 19" in group.read_text())


def test_drumline_warm_shows_and_stops_a_warm_process_that_is_not_ready(place: Place) -> None:
    workspace = place.workspace
    workspace.write("wait", "")
    run = place.train()
    workspace.wait_numbers("up", 1)
    wait_until(lambda: list(list_warm_processes(workspace.home)))
    (shown,) = json.loads(workspace.run("warm", "-o", "json").out)
    assert (shown["framework"], shown["modules"], shown["ready"]) == ("plain", ["gated"], False)
    assert workspace.run("warm").out.splitlines()[1].endswith("starting")
    assert workspace.run("warm", "stop", shown["key"][:6]).out == "stopped 1 warm process\n"
    assert not is_alive(shown["pid"])
    assert not list(warm_folder(workspace.home).iterdir())
    (workspace.project / "wait").unlink()
    run.wait_for(Phase.FINISHED)


def test_a_restart_is_warm_once_the_warm_process_is_ready(place: Place) -> None:
    place.workspace.write("wait", "")
    run = place.train("restart: 1\n")
    (first,) = place.workspace.wait_numbers("up", 1)
    place.open_gate()
    os.kill(first, signal.SIGKILL)
    place.workspace.wait_numbers("up", 2)
    (place.workspace.project / "wait").unlink()
    run.wait_for(Phase.FINISHED)
    assert notes(run) == [f"cold: {PREPARING}", "warm"]


@pytest.mark.parametrize("end", ["finished", "killed", "supervisor killed"])
def test_a_warm_process_ends_with_its_run_also_during_its_imports(place: Place, end: str) -> None:
    workspace = place.workspace
    workspace.write("wait", "")
    run = workspace.train(place.spec.replace("[gated]", "[gated], keep: 0"))
    workspace.wait_numbers("up", 1)
    wait_until(lambda: list(list_warm_processes(workspace.home)))
    if end == "killed":
        assert workspace.run("kill", run.id).code == 0
    elif end == "supervisor killed":
        run.kill_supervisor()
        (workspace.project / "wait").unlink()
        assert workspace.run("supervise", run.id).code == 0
        run.wait_for(Phase.FINISHED)
    else:
        (workspace.project / "wait").unlink()
        run.wait_for(Phase.FINISHED)
    assert not place.known.ready
    workspace.write("gate", "")
    wait_until(lambda: not list(warm_folder(workspace.home).iterdir()))


def test_a_changed_environment_means_a_cold_start_and_another_warm_process(place: Place) -> None:
    place.workspace.write("gate", "")
    place.train_to_the_end()
    place.open_gate()
    before = place.known.pid
    (place.workspace.project / "gate").unlink()
    place.module.write_text(f"{GATED}# changed\n")
    assert place.train_to_the_end()[1] == f"cold: {PREPARING}"
    place.open_gate()
    assert place.known.pid != before
    assert place.train_to_the_end()[1] == "warm"


@pytest.mark.parametrize("cores", [1, 2])
def test_a_ready_warm_process_that_does_not_answer_means_a_cold_start(place: Place, cores: int) -> None:
    place.workspace.write("gate", "")
    place.workspace.cores = cores
    place.train_to_the_end()
    place.open_gate()
    pid = place.known.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        assert place.train_to_the_end()[1] == "cold: the warm process does not answer"
    finally:
        os.kill(pid, signal.SIGCONT)
    assert place.train_to_the_end()[1] == "warm"


def test_a_killed_warm_process_is_not_listed_as_ready(place: Place) -> None:
    place.workspace.write("gate", "")
    place.train_to_the_end()
    place.open_gate()
    (place.workspace.project / "gate").unlink()
    kill_and_wait(place.known.pid)
    assert place.train_to_the_end()[1] == f"cold: {PREPARING}"
    place.workspace.write("gate", "")


def test_no_warm_process_is_started_if_memory_is_short(place: Place) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can hide memory")
    total = Path("/proc/meminfo").read_text().splitlines()[0]
    short = place.workspace.write("meminfo", f"{total}\nMemAvailable: 1 kB\n")
    place.workspace.command_prefix = (
        "unshare",
        "-m",
        "sh",
        "-c",
        f'mount --bind {short} /proc/meminfo && exec "$@"',
        "sh",
    )
    place.workspace.write("wait", "")
    run = place.train()
    place.workspace.wait_numbers("up", 1)
    (place.workspace.project / "wait").unlink()
    run.wait_for(Phase.FINISHED)
    wait_until(lambda: not list(warm_folder(place.workspace.home).iterdir()))
    assert notes(run) == [f"cold: {PREPARING}"]
