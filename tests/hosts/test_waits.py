"""Runs that wait: for a host that does not answer, for a port that another run uses, for prepared data."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from drumline.engine.agent.bootstrap import STUB
from drumline.engine.agent.cleanup import UNUSED_SECONDS
from drumline.engine.agent.package import package_name
from drumline.engine.ssh.plan_options import Host, hosts_of, with_hosts
from drumline.plan.types import ReplicaId
from drumline.run.event import ReplicaStarted
from drumline.run.state import Phase
from hosts.host_cluster import HOME, HostCluster
from hosts.testbed import SshTestBed
from scaffold.supervised import SupervisedRun, cast
from scaffold.testbeds import Behavior
from scaffold.waiting import wait_until
from scaffold.workspace import Workspace

LONG_SECONDS = 900.0
HELPER = ReplicaId("prepare", 0)
PORT = 12345
SERVER = f"import signal, socket; s = socket.create_server(('', {PORT})); print('serves', flush=True); signal.pause()"
HOSTS = f"[{{host: h1, cpus: 1, port: {PORT}}}, {{host: h2, cpus: 1, port: {PORT}}}]"
ENGINE = f"engine: {{ssh: {{hosts: {HOSTS}}}}}\n"
WAITING = f"run: python3 serve.py\nroles: {{worker: 2}}\nresources: {{cpus: 1}}\n{ENGINE}"


@pytest.fixture
def workspace(workspace: Workspace) -> Workspace:
    workspace.write("serve.py", SERVER)
    return workspace


@contextmanager
def serving(host_cluster: HostCluster, name: str) -> Iterator[int]:
    """Run a program on a host that uses the port; yield its pid on the host."""
    host_cluster.path(name, "/tmp/serve.py").write_text(SERVER)
    script = "exec python3 /tmp/serve.py > /tmp/served 2>&1 < /dev/null & echo $!"
    pid = int(host_cluster.run(name, "sh", "-c", script))
    try:
        wait_until(lambda: host_cluster.path(name, "/tmp/served").read_text() == "serves\n")
        yield pid
    finally:
        host_cluster.run(name, "kill", "-9", str(pid))
        host_cluster.wait_idle(name)


def test_a_fixed_port_in_use_is_reported_before_anything_starts(
    workspace: Workspace, host_cluster: HostCluster
) -> None:
    workspace.write_spec(f"run: echo hello\nroles: {{worker: 3}}\n{ENGINE}")  # a second on h1, with the next port
    with serving(host_cluster, "h2") as pid:
        answer = workspace.run("train")
    assert answer.code == 2
    assert answer.err.splitlines()[-2:] == [
        f"error: port {PORT} of h2 is taken by `python3 /tmp/serve.py` (pid {pid}, root)",
        f"hint: end it: `ssh h2 kill {pid}`, or give h2 another `port`",
    ]
    assert not workspace.runs()
    assert workspace.run("train").code == 0


def test_a_run_waits_while_another_run_uses_its_ports(workspace: Workspace, host_cluster: HostCluster) -> None:
    first = workspace.train(WAITING)
    wait_until(lambda: all(b"serves" in first.log(f"worker.{n}") for n in range(2)), LONG_SECONDS)
    second = workspace.train(WAITING)
    second.wait_for(Phase.PENDING)
    workspace.write_spec(WAITING.replace("resources: {cpus: 1}\n", ""))  # without resources it would not wait
    answer = workspace.run("train")
    assert answer.code == 2
    assert f"error: port {PORT} of h1 is taken by {first.id}.worker.0 of another run (pid " in answer.err
    assert f"error: port {PORT} of h2 is taken by {first.id}.worker.1 of another run (pid " in answer.err
    assert "hint: wait until that run is over, or give h2 another `port`" in answer.err
    workspace.run("kill", first.id)
    wait_until(lambda: all(b"serves" in second.log(f"worker.{n}") for n in range(2)), LONG_SECONDS)
    assert workspace.run("kill", second.id).code == 0


def test_a_run_that_waits_for_a_host_can_be_killed(workspace: Workspace, host_cluster: HostCluster) -> None:
    first = workspace.train(WAITING)
    first.wait_for(Phase.RUNNING, LONG_SECONDS)
    second = workspace.train(WAITING)
    second.wait_for(Phase.PENDING)
    second.kill_supervisor()
    host_cluster.kill_sshd("h2")
    try:
        assert workspace.run("supervise", second.id).code == 0  # which requests places again
        # A slow h1 may not have answered either when the run has to wait.
        wait_until(lambda: second.state.waits.partition(" (")[2].startswith("h2 cannot be reached: "))
        answer = workspace.run("kill", second.id)
    finally:
        host_cluster.start_sshd("h2")
    assert answer.code == 0, answer
    assert second.state.phase is Phase.KILLED
    assert not any(isinstance(event, ReplicaStarted) for event in second.events)
    assert first.state.phase is Phase.RUNNING
    assert workspace.run("kill", first.id).code == 0


def test_a_host_that_was_unreachable_during_the_preparation_prepares_later_and_is_used(
    host_cluster: HostCluster, tmp_path: Path
) -> None:
    testbed = SshTestBed(tmp_path, host_cluster)
    behaviors = {"prepare": Behavior(("making",)), "worker.0": Behavior(("works",)), "worker.1": Behavior(("works",))}
    plan = cast(testbed, "prepare worker*2", behaviors)
    hosts = hosts_of(plan).replace(all=tuple(Host(name, cpus=1.0) for name in ("h1", "h2")))
    replicas = tuple(each.replace(resources=each.resources.replace(cpus=1.0)) for each in plan.replicas)
    host_cluster.kill_sshd("h2")
    try:
        supervised = SupervisedRun(testbed, tmp_path / "supervised", with_hosts(plan, hosts).replace(replicas=replicas))
        supervised.begin()
        supervised.until(lambda: supervised.state.waits)  # the reachable host is prepared, and the run needs both
        assert supervised.state.waits.startswith("waits for h2 to answer")
        assert supervised.log(HELPER).startswith("making\n")
    finally:
        host_cluster.start_sshd("h2")
    state = supervised.until_over()
    assert state.phase is Phase.FINISHED, supervised.events
    assert "h2: making\n" in supervised.log(HELPER)
    notes = {str(each.replica): each.note for each in supervised.events if isinstance(each, ReplicaStarted)}
    assert notes == {"prepare": "on h1", "worker.0": "on h1", "worker.1": "on h2"}
    wait_until(lambda: not testbed.left())
    testbed.close()


def test_an_unused_copy_of_drumline_is_removed_and_one_in_use_is_kept(
    workspace: Workspace, host_cluster: HostCluster
) -> None:
    shelf = f"{HOME}/.cache/drumline/hosts"
    workspace.write_spec("run: 'true'\nroles: {worker: 1}\nengine: {ssh: [h1]}\n")
    assert workspace.run("train").code == 0  # sends a copy of drumline
    old, used, name = "0" * 16, "1" * 16, package_name()
    ages = f"touch -d '-{UNUSED_SECONDS + 60:.0f} seconds' {old} {used}"
    host_cluster.run("h1", "sh", "-c", f"cd {shelf} && cp -r {name} {old} && cp -r {name} {used} && {ages}")
    words = [
        "ssh",
        "-F",
        str(host_cluster.config),
        "h1",
        shlex.join(["python3", "-I", "-c", STUB, shelf, used, "keep"]),
    ]
    agent = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert agent.stdout
    assert "ready" in agent.stdout.readline()
    host_cluster.run("h1", "sh", "-c", f"cd {shelf} && {ages}")  # as if it had been there for so long
    found = host_cluster.path("h1", shelf)
    try:
        run = workspace.train("run: sleep 1.5\nroles: {worker: 1}\nengine: {ssh: [h1]}\n")
        wait_until(lambda: not (found / old).exists())
        run.wait_for(Phase.FINISHED)
        assert sorted(each.name for each in found.iterdir()) == sorted([used, name])
    finally:
        agent.communicate()  # its input is closed, and it exits
