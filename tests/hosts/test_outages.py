"""Whole runs during faults of hosts: disconnected networks, and killed sshd's and supervisors.

Each exit is reported once, every log line is there once, and no process is left on any host.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from drumline.cli.text import utc
from drumline.run.event import ReplicaStarted
from drumline.run.state import Phase
from drumline.run.traces import UNREACHED
from drumline.run.unverified import unverified_from_text, unverified_to_text
from hosts.host_cluster import SHARED, HostCluster
from scaffold.waiting import wait_until
from scaffold.workspace import Run, Workspace

LONG_SECONDS = 900.0
LINES = 60
# The replicas run until the gate is open, however long a busy machine takes for the faults.
SCRIPT = f"""
import os, time
number = 0
while number < {LINES} or not os.path.exists("GATE"):
    print(f"line {{number}}", flush=True)
    time.sleep(0.1)
    number += 1
"""
FOREVER = SCRIPT.replace("GATE", "/nowhere")
WORKERS = ("worker.0", "worker.1", "worker.2")


@pytest.fixture
def gate(host_cluster: HostCluster, tmp_path: Path) -> Path:
    """Return the path of a file that lets the replicas end."""
    return host_cluster.shared / tmp_path.name


@pytest.fixture
def workspace(workspace: Workspace, gate: Path) -> Workspace:
    workspace.write("train.py", SCRIPT.replace("GATE", f"{SHARED}/{gate.name}"))
    return workspace


def train(
    workspace: Workspace, *, lost: str = "30s", lease: str = "60s", rest: str = "", script: str = "train.py"
) -> Run:
    """Start a worker on each of three hosts."""
    engine = f"engine: {{ssh: {{hosts: [h1, h2, h3], lost: {lost}, lease: {lease}}}}}"
    return workspace.train(f"run: python3 {script}\nroles: {{worker: 3}}\n{engine}\n{rest}")


def wait_line(run: Run, replica: str, number: int, attempt: int = 0) -> None:
    wait_until(lambda: b"line %d\n" % number in run.log(replica, attempt), LONG_SECONDS)


def check(run: Run, gate: Path, *, supervisors: int = 1) -> None:
    """Open the gate, and check that each replica exited once, with 0, and each log line is there once."""
    gate.touch()
    run.wait_for(Phase.FINISHED, LONG_SECONDS)
    starts = Counter(str(event.replica) for event in run.events if isinstance(event, ReplicaStarted))
    assert all(1 <= starts[worker] <= supervisors for worker in WORKERS), starts
    assert sorted(str(event.replica) for event in run.exits()) == list(WORKERS)
    for worker in WORKERS:
        assert run.exit(worker).code == 0
        check_lines(run.log(worker))
    assert run.said() == ""


def check_lines(log: bytes) -> None:
    """Check that every line is there once, from the first to the last."""
    lines = log.count(b"\n")
    assert lines >= LINES
    assert log == b"".join(b"line %d\n" % number for number in range(lines))


def test_a_run_continues_when_a_host_is_disconnected_for_a_while(
    workspace: Workspace, host_cluster: HostCluster, gate: Path
) -> None:
    run = train(workspace)
    wait_line(run, "worker.1", 5)
    host_cluster.link("h2", up=False)
    came = run.log("worker.1").count(b"\n")
    wait_line(run, "worker.0", came + 45)  # about five seconds
    assert run.log("worker.1").count(b"\n") < came + 30  # lines that were in transit
    host_cluster.link("h2", up=True)
    check(run, gate)


def test_exits_on_a_host_that_is_reconnected_after_the_end_of_all_replicas_are_reported(
    workspace: Workspace, host_cluster: HostCluster, gate: Path
) -> None:
    run = train(workspace)
    wait_line(run, "worker.1", 5)
    host_cluster.link("h2", up=False)
    gate.touch()
    wait_until(lambda: not any("train.py" in each.argv for each in host_cluster.processes("h2")), LONG_SECONDS)
    wait_until(lambda: {"worker.0", "worker.2"} <= {str(end.replica) for end in run.exits()}, LONG_SECONDS)
    host_cluster.link("h2", up=True)
    check(run, gate)


def test_a_run_continues_when_an_sshd_and_all_its_sessions_are_killed(
    workspace: Workspace, host_cluster: HostCluster, gate: Path
) -> None:
    run = train(workspace)
    for number in (5, 20, 35):
        wait_line(run, "worker.2", number)
        host_cluster.kill_sshd("h3")
        host_cluster.start_sshd("h3")
    check(run, gate)


def test_a_run_continues_when_its_supervisor_is_killed_repeatedly(workspace: Workspace, gate: Path) -> None:
    run = train(workspace)
    for number in (5, 20, 35):
        wait_line(run, "worker.1", number)
        run.kill_supervisor()
        assert workspace.run("supervise", run.id).code == 0
    check(run, gate, supervisors=4)


def test_a_run_continues_when_its_supervisor_is_killed_while_a_host_is_disconnected(
    workspace: Workspace, host_cluster: HostCluster, gate: Path
) -> None:
    run = train(workspace)
    wait_line(run, "worker.1", 5)
    host_cluster.link("h2", up=False)
    wait_line(run, "worker.0", 15)
    run.kill_supervisor()
    assert workspace.run("supervise", run.id).code == 0
    wait_line(run, "worker.0", 30)
    host_cluster.link("h2", up=True)
    check(run, gate, supervisors=2)


def forever(workspace: Workspace, **options: str) -> Run:
    workspace.write("forever.py", FOREVER)
    return train(workspace, script="forever.py", **options)


def test_a_killed_supervisor_leaves_nothing_running_after_the_lease(
    workspace: Workspace, host_cluster: HostCluster
) -> None:
    run = forever(workspace, lost="8s", lease="16s")
    wait_line(run, "worker.1", 5)
    run.kill_supervisor()
    for name in host_cluster.names:
        host_cluster.wait_idle(name, 60)
    answer = workspace.run("status", run.id)
    assert f"drumline supervise {run.id}" in answer.out + answer.err
    assert workspace.run("supervise", run.id).code == 0
    run.wait_for(Phase.FAILED, LONG_SECONDS)
    assert run.cause.failure == "lost"


def test_a_lost_host_is_named_as_the_cause(workspace: Workspace, host_cluster: HostCluster) -> None:
    run = forever(workspace, lost="8s", lease="16s")
    wait_line(run, "worker.1", 5)
    host_cluster.link("h2", up=False)
    run.wait_for(Phase.FAILED, LONG_SECONDS)
    assert (str(run.cause.replica), run.cause.reason, run.cause.failure) == ("worker.1", "HostLost", "lost")
    assert "h2" in run.cause.exit.message
    assert {worker: run.replica_phase(worker) for worker in WORKERS} == {
        "worker.0": Phase.KILLED,
        "worker.1": Phase.FAILED,
        "worker.2": Phase.KILLED,
    }
    for name in ("h1", "h3"):
        host_cluster.wait_idle(name)
    host_cluster.wait_idle("h2", 60)  # it is unreachable, and its lease has expired


def test_a_host_with_a_key_that_changes_during_a_run_is_not_trusted_again(
    workspace: Workspace, host_cluster: HostCluster
) -> None:
    run = forever(workspace, lost="8s", lease="16s")
    wait_line(run, "worker.1", 5)
    host_cluster.new_host_key("h2")
    try:
        run.wait_for(Phase.FAILED, LONG_SECONDS)
        host_cluster.wait_idle("h2", 60)
    finally:
        host_cluster.trust(*host_cluster.names)
    assert (str(run.cause.replica), run.cause.reason) == ("worker.1", "HostLost")
    told = workspace.run("status", run.id).out
    assert "the key of h2 is another than the one in" in told


def test_a_gang_starts_again_on_the_remaining_hosts(
    workspace: Workspace, host_cluster: HostCluster, gate: Path
) -> None:
    run = train(workspace, lost="8s", lease="16s", rest="restart: {lost: 1}")
    wait_line(run, "worker.1", 5)
    host_cluster.link("h2", up=False)
    wait_line(run, "worker.1", 5, attempt=1)
    gate.touch()
    run.wait_for(Phase.FINISHED, LONG_SECONDS)
    host_cluster.wait_idle("h2", 60)
    (cause,) = run.state.causes
    assert (cause.reason, cause.failure) == ("HostLost", "lost")
    for worker in WORKERS:
        check_lines(run.log(worker, 1))


def test_a_gang_that_does_not_fit_on_the_remaining_hosts_fails_and_names_the_lost_one(
    workspace: Workspace, host_cluster: HostCluster
) -> None:
    workspace.write("forever.py", FOREVER)
    hosts = ", ".join(f"{{host: {name}, cpus: 1}}" for name in host_cluster.names)
    run = workspace.train(
        "run: python3 forever.py\nroles: {worker: 3}\nresources: {cpus: 1}\nrestart: {lost: 1}\n"
        f"engine: {{ssh: {{hosts: [{hosts}], lost: 8s, lease: 16s}}}}"
    )
    wait_line(run, "worker.1", 5)
    host_cluster.link("h2", up=False)
    run.wait_for(Phase.FAILED, LONG_SECONDS)
    host_cluster.wait_idle("h2", 60)
    told = workspace.run("status", run.id)
    assert "h2" in told.out + told.err


def test_kill_returns_when_nothing_is_left_on_any_host(workspace: Workspace, host_cluster: HostCluster) -> None:
    workspace.write("stubborn.py", f"import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n{FOREVER}")
    run = train(workspace, script="stubborn.py", rest="timeouts: {grace: 1s}")
    wait_line(run, "worker.2", 5)
    answer = workspace.run("kill", run.id)
    assert answer.code == 0, answer
    assert not [
        each for name in host_cluster.names for each in host_cluster.processes(name) if "stubborn.py" in each.argv
    ]
    assert run.state.phase is Phase.KILLED


def test_kill_lists_the_hosts_that_could_not_be_reached(workspace: Workspace, host_cluster: HostCluster) -> None:
    run = forever(workspace, lost="8s", lease="16s")
    wait_line(run, "worker.2", 5)
    host_cluster.link("h3", up=False)
    answer = workspace.run("kill", run.id)
    assert answer.code == 1
    assert f"run {run.id} is over, but h3 could not be reached" in answer.err
    assert not [each for name in ("h1", "h2") for each in host_cluster.processes(name) if "forever.py" in each.argv]
    host_cluster.wait_idle("h3", 60)
    unreached = run.path / UNREACHED
    (unverified,) = unverified_from_text(unreached.read_text())
    assert unverified.until is not None
    assert unverified.until > unreached.stat().st_mtime + 16  # the lease
    assert f"ends by itself, at the latest at {utc(unverified.until)}" in answer.err
    unreached.write_text(unverified_to_text([unverified.replace(until=time.time() - 1)]))  # as if that time had passed
    answer = workspace.run("kill", run.id)
    assert answer.code == 0, answer
    assert (
        "h3 could not be reached, and its replicas there have ended with their lease, at the latest at 20" in answer.out
    )


def test_ports_in_use_on_a_host_are_not_given_to_a_run(workspace: Workspace, host_cluster: HostCluster) -> None:
    taker = "import socket, time; s = socket.create_server(('', 20000)); time.sleep(600)"
    host_cluster.run("h2", "sh", "-c", f'python3 -c "{taker}" > /dev/null 2>&1 < /dev/null &')
    wait_until(lambda: ":4E20 " in host_cluster.path("h2", "/proc/1/net/tcp").read_text() or None)
    workspace.write("peers.py", "import os\nprint(os.environ['TF_CONFIG'])\n")
    try:
        run = workspace.train(
            "framework: tensorflow\nwarm: false\nrun: python3 peers.py\nroles: {worker: 3}\n"
            "engine: {ssh: {hosts: [h1, h2, h3]}}"
        )
        run.wait_for(Phase.FINISHED, LONG_SECONDS)
        assert b'"worker": ["10.89.0.11:20000", "10.89.0.12:20001", "10.89.0.13:20000"]' in run.log("worker.0")
    finally:
        with suppress(AssertionError):
            host_cluster.run("h2", "pkill", "-9", "python3")
