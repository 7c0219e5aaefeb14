"""Private networks after failures: killed processes, later replicas, disabled links, and that no network is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from drumline.run.state import Phase
from scaffold.peers import PEER, PRIVATE, end, peers, wait_met
from scaffold.processes import is_alive, kill_and_wait
from scaffold.waiting import wait_until
from scaffold.workspace import Workspace

pytestmark = pytest.mark.usefixtures("private_networks")


def namespaces(pid: int) -> set[str]:
    """Return the namespaces of a process that this process is not in."""
    kinds = ("user", "net", "uts")
    theirs = {os.readlink(f"/proc/{pid}/ns/{kind}") for kind in kinds}  # noqa: PTH115
    return theirs - {os.readlink(f"/proc/self/ns/{kind}") for kind in kinds}  # noqa: PTH115


def holders(wanted: set[str]) -> list[str]:
    """Return the processes, files and mounts of this machine that keep one of these namespaces."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal() and is_alive(int(process.name)):
            for folder in ("ns", "fd"):
                try:
                    links = list((process / folder).iterdir())
                except OSError:
                    continue
                for link in links:
                    try:
                        target = str(link.readlink())
                    except OSError:
                        continue
                    if target in wanted:
                        found.append(f"{link}: {target}")
    return found


def test_the_attempt_after_a_failure_has_a_private_network_again(each_user: Workspace) -> None:
    run = peers(each_user, more="restart: {early: 1}")
    before = namespaces(run.pid("worker.0"))
    with Path(f"/proc/{run.pid('worker.0')}/ns/net").open(), Path(f"/proc/{run.pid('worker.0')}/ns/uts").open():
        # While a process has them open, their inode numbers are not used again.
        end(run, code=3)
        wait_met(run, 2, attempt=1)
        again = {each for each in namespaces(run.pid("worker.0", 1)) if not each.startswith("user")}
    assert again
    assert not again & before
    end(run, attempt=1)
    run.wait_for(Phase.FINISHED)


def test_a_private_network_outlives_its_supervisor(each_user: Workspace) -> None:
    run = peers(each_user)
    before = namespaces(run.pid("worker.1"))
    run.kill_supervisor()
    assert each_user.run("supervise", run.id).code == 0
    assert namespaces(run.pid("worker.1")) == before
    end(run)
    run.wait_for(Phase.FINISHED)


def test_a_replica_that_starts_later_joins_the_network_of_the_others(workspace: Workspace) -> None:
    # The first replica kills the supervisor, while that still starts the others; between the supervisor and the keeper
    # is the fork server. Until another supervisor has come these are not there, and peers that look for them for three
    # seconds do not find them.
    workspace.write("peer.py", PEER.replace("except ConnectionRefusedError:", "except OSError:"))
    assassin = """
read -r _ _ _ forks _ < /proc/$PPID/stat; read -r _ _ _ parent _ < /proc/$forks/stat
kill -9 $parent; echo $parent > killed"""
    workspace.write("assassin.sh", f"{assassin}; exec python peer.py")
    workspace.write_spec(f"""
framework: tensorflow
run: {{argv: [python, peer.py]}}
roles: {{worker: {{replicas: 16, first: {{run: sh assassin.sh}}}}}}
timeouts: {{grace: 1}}
{PRIVATE}
""")
    workspace.run("train", "-d")
    workspace.wait_numbers("killed", 1)
    (run,) = workspace.runs()
    run.wait_alone()
    assert workspace.run("supervise", run.id).code == 0
    wait_met(run, 16)
    end(run)
    run.wait_for(Phase.FINISHED)


# A replica, a child in its process group, a child in its own session, and a daemon, possibly without environment.
TREE = """
echo $$ >> $HERE/tree
sleep 1000 & echo $! >> $HERE/tree
setsid sleep 1000 & echo $! >> $HERE/tree
($FORGETTING setsid sleep 1000 > /dev/null 2>&1 < /dev/null & echo $! >> $HERE/tree)
wait
"""


@pytest.mark.parametrize("killed", ["none", "supervisor", "keeper", "both"])
def test_kill_ends_the_whole_tree_and_nothing_holds_the_network(each_user: Workspace, killed: str) -> None:
    each_user.write("tree.sh", TREE)
    forgetting = "" if killed == "both" else "env -i"  # without its ancestors it can only be found by its environment
    run = each_user.train(
        f"run: sh tree.sh\nroles: {{worker: 2}}\n{PRIVATE}\ntimeouts: {{grace: 1}}",
        env={"FORGETTING": forgetting},
    )
    tree = each_user.wait_numbers("tree", 8)
    used = set[str]().union(*(namespaces(pid) for pid in tree))
    assert len(used) == 1 + 2 + 2  # one user namespace, and a network and a UTS namespace for each
    inherited = [each for pid in tree for each in each_user.descriptors(pid)]
    assert not [each for each in inherited if each.startswith(("user:", "net:", "uts:"))]
    hub = set(each_user.descriptors(run.keeper("worker.0"))) & set(each_user.descriptors(run.keeper("worker.1")))
    used |= {each for each in hub if each.startswith("net:")}
    assert len(used) == 6
    if killed in ("supervisor", "both"):
        run.kill_supervisor()
    if killed in ("keeper", "both"):
        kill_and_wait(run.keeper("worker.0"))
    each_user.run("kill", run.id)
    wait_until(lambda: run.state.phase.is_final)
    assert [pid for pid in tree if is_alive(pid)] == []
    wait_until(lambda: run.supervisor() is None)
    wait_until(lambda: not holders(used))  # for a while another test may use the same number


# Enters the hub that a keeper holds, as `drill` does, and enables or disables a link.
SWITCH = """
import socket, sys
from drumline.engine.local.netlink import Netlink
from drumline.engine.local.network import open_hub
from drumline.runtime.keeper import enter_namespace
for descriptor in open_hub(int(sys.argv[1])).descriptors:
    enter_namespace(descriptor)
with Netlink() as wires:
    wires.set_up(socket.if_nametoindex(sys.argv[2]), up=sys.argv[3] == "on")
"""
# The second worker connects to the first one repeatedly, and records whether that succeeds.
KNOCKER = """
import json, os, socket, time
from pathlib import Path
here = Path(os.environ["HERE"])
config = json.loads(os.environ["TF_CONFIG"])
def knock():
    try:
        socket.create_connection((config["cluster"]["worker"][0].partition(":")[0], 2222), timeout=1).close()
    except ConnectionRefusedError:
        return "there"
    except OSError:
        return "away"
while not (here / "go").exists():
    if config["task"]["index"]:
        (here / knock()).touch()
    else:
        time.sleep(0.05)
"""


def test_a_replica_with_a_disabled_link_is_disconnected_until_the_link_is_enabled(workspace: Workspace) -> None:
    workspace.write("knocker.py", KNOCKER)
    run = workspace.train(f"""
framework: tensorflow
roles:
  chief: {{run: "until [ -e go ]; do sleep 0.05; done"}}
  worker: {{replicas: 2, run: python knocker.py}}
{PRIVATE}
""")
    wait_until(lambda: workspace.exists("there"))

    def switch(cable: str, to: str) -> None:
        words = [sys.executable, "-c", SWITCH, str(run.keeper("chief.0")), cable, to]
        subprocess.run(words, check=True)

    switch("worker.1", "off")
    wait_until(lambda: workspace.exists("away"))
    (workspace.project / "there").unlink()
    switch("worker.1", "on")
    wait_until(lambda: workspace.exists("there"))
    workspace.write("go", "")
    run.wait_for(Phase.FINISHED)


def test_a_replica_that_ended_by_a_signal_is_reported_so(workspace: Workspace) -> None:
    run = peers(workspace)
    os.kill(run.pid("worker.1"), signal.SIGKILL)
    run.wait_for(Phase.FAILED)
    assert run.cause.exit.signal == signal.SIGKILL
    assert str(run.cause.replica) == "worker.1"
