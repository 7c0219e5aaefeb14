"""A private network: its replicas reach each other, nobody else reaches them, and it is gone when they are."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from drumline.engine.local.claim import PortClaim, claim_port
from drumline.run.event import AttemptPlaced
from drumline.run.state import Phase
from integration.local.runs import House, Run, kill_and_wait, lives, wait_until

pytestmark = pytest.mark.usefixtures("private_networks")

PRIVATE = "engine: {local: {network: private}}"

# Everybody serves a greeting with its run on the port of its own address, waits until it was greeted by all
# others as one of this run, says so, and serves on until it is told to end.
PEER = """
import json, os, socket, threading, time
from pathlib import Path
config = json.loads(os.environ["TF_CONFIG"])
here, run, attempt = Path(os.environ["HERE"]), os.environ["DRUMLINE_RUN"], os.environ["DRUMLINE_ATTEMPT"]
index = config["task"]["index"]
host, _, port = config["cluster"]["worker"][index].rpartition(":")
server = socket.create_server(("", int(port)))
def serve():
    while True:
        client, _ = server.accept()
        client.sendall(run.encode())
        client.close()
threading.Thread(target=serve, daemon=True).start()
def greet(address):
    host, _, port = address.rpartition(":")
    while True:
        try:
            with socket.create_connection((host, int(port)), timeout=30) as client:
                return client.recv(64).decode()
        except ConnectionRefusedError:
            time.sleep(0.01)  # it is there, and does not serve yet
greeted = {address: greet(address) for address in config["cluster"]["worker"]}
print(json.dumps({"host": socket.gethostname(), "uid": os.getuid(), "greeted": greeted}), flush=True)
(here / f"met-{run}-{attempt}-{index}").touch()
while not (here / f"go-{run}-{attempt}").exists():
    time.sleep(0.01)
raise SystemExit(int((here / f"go-{run}-{attempt}").read_text()))
"""


def peers(house: House, *, port: int = 2222, workers: int = 2, network: str = PRIVATE, more: str = "") -> Run:
    """A line of which each has met all the others."""
    house.write("peer.py", PEER)
    run = house.train(f"""
framework: tensorflow
run: {{argv: [{python_for(house)}, peer.py]}}
port: {port}
roles: {{worker: {workers}}}
timeouts: {{grace: 1}}
{network}
{more}
""")
    wait_met(run, workers)
    return run


def python_for(house: House) -> str:
    """A Python that the replicas of this house may run: ours may be for its owner alone."""
    for python in (sys.executable, "/usr/bin/python3"):
        if (
            subprocess.run([*house.before, "sh", "-c", f"{python} -c ''"], capture_output=True, check=False).returncode
            == 0
        ):
            return python
    pytest.skip("no Python that everybody may run")


def wait_met(run: Run, workers: int, attempt: int = 0) -> None:
    def has_met() -> bool:
        assert not run.state.phase.is_final, [run.log(f"worker.{index}", attempt) for index in range(workers)]
        return all(run.house.exists(f"met-{run.id}-{attempt}-{index}") for index in range(workers))

    wait_until(has_met)


def end(run: Run, attempt: int = 0, code: int = 0) -> None:
    part = run.house.write(f"go-{run.id}-{attempt}.part", str(code))
    part.rename(part.with_suffix(""))


def namespaces(pid: int) -> set[str]:
    """The namespaces of a process that are not ours."""
    kinds = ("user", "net", "uts")
    theirs = {os.readlink(f"/proc/{pid}/ns/{kind}") for kind in kinds}  # noqa: PTH115
    return theirs - {os.readlink(f"/proc/self/ns/{kind}") for kind in kinds}  # noqa: PTH115


def holders(wanted: set[str]) -> list[str]:
    """Everything on this machine that keeps one of these namespaces."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal() and lives(int(process.name)):
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


@pytest.fixture
def port() -> Iterator[int]:
    """A port that nobody of this machine listens on, and nobody will."""
    claim: PortClaim | None = next(filter(None, map(claim_port, range(31_000, 32_000))))
    assert claim
    yield claim.port
    claim.close()


@pytest.fixture(params=["house", "stranger"])
def anyones(request: pytest.FixtureRequest) -> House:
    """A house of ours, and one of a user without rights."""
    found: House = request.getfixturevalue(request.param)
    return found


def reach(address: tuple[str, int]) -> str:
    """Connect from here, but never through a gateway: nothing of a test leaves the machine."""
    with socket.socket() as client:
        client.settimeout(30)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_DONTROUTE, 1)
        client.connect(address)
        return client.recv(64).decode()


def test_replicas_meet_at_addresses_of_their_own_and_at_the_same_port(anyones: House) -> None:
    run = peers(anyones, workers=3)
    addresses = ["10.77.0.1:2222", "10.77.0.2:2222", "10.77.0.3:2222"]
    assert [event.addresses for event in run.events if isinstance(event, AttemptPlaced)] == [tuple(addresses)]
    greeted = str(dict.fromkeys(addresses, run.id)).replace("'", '"')
    uid = anyones.project.stat().st_uid
    for index in range(3):
        told = f'{{"host": "10.77.0.{index + 1}", "uid": {uid}, "greeted": {greeted}}}\n'
        assert run.log(f"worker.{index}").decode() == told
        assert (anyones.project / f"met-{run.id}-0-{index}").stat().st_uid == uid
    end(run)
    run.wait_for(Phase.FINISHED)


def test_nobody_outside_reaches_them(house: House, port: int) -> None:
    run = peers(house, port=port)
    with pytest.raises(ConnectionRefusedError):
        reach(("127.0.0.1", port))
    for host in ("10.77.0.1", "10.77.0.2"):
        with pytest.raises(OSError, match="unreachable"):
            reach((host, port))
    end(run)
    run.wait_for(Phase.FINISHED)


def test_in_the_shared_network_anybody_reaches_them(house: House, port: int) -> None:
    """What the test above tries can succeed."""
    run = peers(house, port=port, workers=1, network="tensorflow: {tf_config: always}")
    assert reach(("127.0.0.1", port)) == run.id
    end(run)
    run.wait_for(Phase.FINISHED)


def test_runs_side_by_side_have_the_same_addresses_and_never_meet(house: House) -> None:
    runs = [peers(house) for _ in range(2)]
    for run in runs:
        assert f'"10.77.0.2:2222": "{run.id}"' in run.log("worker.0").decode()
        end(run)
        run.wait_for(Phase.FINISHED)


def test_there_is_no_way_out_and_the_own_loopback_is_nobody_elses(house: House) -> None:
    house.write(
        "out.py",
        """
        import os, socket
        for address in (("192.0.2.1", 80), ("127.0.0.1", int(os.environ["SERVED"]))):
            try:
                socket.create_connection(address, timeout=30)
            except OSError as error:
                print(error.strerror)
        """,
    )
    with socket.create_server(("127.0.0.1", 0)) as server:
        served = server.getsockname()[1]
        run = house.train(f"run: {{argv: [python, out.py]}}\n{PRIVATE}\nenv: {{SERVED: {served}}}")
        run.wait_for(Phase.FINISHED)
    assert run.log("worker.0").decode() == "Network is unreachable\nConnection refused\n"


def test_data_is_prepared_outside_it(house: House) -> None:
    house.write("fetch.py", "import os, socket; socket.create_connection(('127.0.0.1', int(os.environ['SERVED'])))")
    with socket.create_server(("127.0.0.1", 0)) as server:
        run = house.train(f"""
{PRIVATE}
data: {{path: data, prepare: python fetch.py}}
run: test -d $DATA_DIR && python fetch.py
env: {{SERVED: {server.getsockname()[1]}}}
""")
        run.wait_for(Phase.FAILED)
        server.accept()[0].close()
    assert b"ConnectionRefusedError" in run.log("worker.0")


def test_files_are_their_owners_and_everybody_elses_nobodys(stranger: House) -> None:
    run = stranger.train(f"run: touch mine; stat -c %u mine /; id -u\n{PRIVATE}")
    run.wait_for(Phase.FINISHED)
    own = (stranger.project / "mine").stat().st_uid
    nobody = Path("/proc/sys/kernel/overflowuid").read_text().strip()
    assert run.log("worker.0").decode().split() == [str(own), nobody, str(own)]


def test_root_keeps_its_rights_over_files(house: House) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root has them")
    secret = house.write("secret", "sesame")
    os.chown(secret, 61234, 61234)
    secret.chmod(0o600)
    run = house.train(f"run: cat secret; stat -c ' %u' secret; chown 61235 secret\n{PRIVATE}")
    run.wait_for(Phase.FINISHED)
    assert run.log("worker.0").decode() == "sesame 61234\n"
    assert secret.stat().st_uid == 61235


def test_an_attempt_after_a_failure_has_a_network_again(anyones: House) -> None:
    run = peers(anyones, more="restart: 1")
    before = namespaces(run.pid("worker.0"))
    end(run, code=3)
    wait_met(run, 2, attempt=1)
    assert not namespaces(run.pid("worker.0", 1)) & before
    end(run, attempt=1)
    run.wait_for(Phase.FINISHED)


def test_a_supervisor_may_come_and_go_and_the_network_stays(anyones: House) -> None:
    run = peers(anyones)
    before = namespaces(run.pid("worker.1"))
    run.kill_supervisor()
    assert anyones.run("supervise", run.id).code == 0
    assert namespaces(run.pid("worker.1")) == before
    end(run)
    run.wait_for(Phase.FINISHED)


def test_whoever_was_not_started_joins_the_network_of_those_who_were(house: House) -> None:
    # The first replica kills the supervisor, its keeper's parent, while that still starts the others.
    house.write("peer.py", PEER)
    assassin = "read -r _ _ _ parent _ < /proc/$PPID/stat; kill -9 $parent; echo $parent > killed"
    house.write("assassin.sh", f"{assassin}; exec python peer.py")
    house.write_spec(f"""
framework: tensorflow
run: {{argv: [python, peer.py]}}
roles: {{worker: {{replicas: 16, first: {{run: sh assassin.sh}}}}}}
timeouts: {{grace: 1}}
{PRIVATE}
""")
    house.run("train", "-d")
    house.wait_numbers("killed", 1)
    (run,) = house.runs()
    assert house.run("supervise", run.id).code == 0
    wait_met(run, 16)
    end(run)
    run.wait_for(Phase.FINISHED)


# A replica, a child in its group, one with a session of its own, and one that forked twice and may know nothing more.
TREE = """
echo $$ >> $HERE/tree
sleep 1000 & echo $! >> $HERE/tree
setsid sleep 1000 & echo $! >> $HERE/tree
($FORGETTING setsid sleep 1000 > /dev/null 2>&1 < /dev/null & echo $! >> $HERE/tree)
wait
"""


@pytest.mark.parametrize("killed", ["nobody", "supervisor", "keeper", "both"])
def test_kill_ends_the_whole_tree_and_nothing_holds_the_network(anyones: House, killed: str) -> None:
    anyones.write("tree.sh", TREE)
    forgetting = "" if killed == "both" else "env -i"  # with nobody left who knew it, it needs its mark to be found
    run = anyones.train(
        f"run: sh tree.sh\nroles: {{worker: 2}}\n{PRIVATE}\ntimeouts: {{grace: 1}}",
        env={"FORGETTING": forgetting},
    )
    tree = anyones.wait_numbers("tree", 8)
    used = set[str]().union(*(namespaces(pid) for pid in tree))
    assert len(used) == 1 + 2 + 2  # a user namespace, and each its network and its name
    inherited = [each for pid in tree for each in anyones.descriptors(pid)]
    assert not [each for each in inherited if each.startswith(("user:", "net:", "uts:"))]
    hub = set(anyones.descriptors(run.keeper("worker.0"))) & set(anyones.descriptors(run.keeper("worker.1")))
    used |= {each for each in hub if each.startswith("net:")}
    assert len(used) == 6
    if killed in ("supervisor", "both"):
        run.kill_supervisor()
    if killed in ("keeper", "both"):
        kill_and_wait(run.keeper("worker.0"))
    anyones.run("kill", run.id)
    wait_until(lambda: run.state.phase.is_final)
    assert [pid for pid in tree if lives(pid)] == []
    wait_until(lambda: run.supervisor() is None)
    wait_until(lambda: not holders(used))  # a number may be another test's by now, for a while


def test_only_its_own_user_can_go_in(stranger: House, house: House) -> None:
    run = peers(house)
    enter = ["nsenter", f"--net=/proc/{run.pid('worker.0')}/ns/net", "true"]
    assert subprocess.run(enter, capture_output=True, check=False).returncode == 0
    assert subprocess.run([*stranger.before, *enter], capture_output=True, check=False).returncode != 0
    end(run)
    run.wait_for(Phase.FINISHED)


# Enters the hub that a keeper holds, as `drill` will, and switches a cable.
SWITCH = """
import socket, sys
from drumline.engine.local.netlink import Netlink
from drumline.engine.local.network import borrow_hub
from drumline.runtime.keeper import enter_namespace
for descriptor in borrow_hub(int(sys.argv[1])):
    enter_namespace(descriptor)
with Netlink() as wires:
    wires.switch(socket.if_nametoindex(sys.argv[2]), on=sys.argv[3] == "on")
"""
KNOCKER = """
import json, os, socket, time
from pathlib import Path
here = Path(os.environ["HERE"])
cluster = json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"]
def knock():
    try:
        socket.create_connection((cluster[0].partition(":")[0], 2222), timeout=1).close()
    except ConnectionRefusedError:
        return "there"
    except OSError:
        return "away"
while not (here / "go").exists():
    (here / knock()).touch()
"""


def test_a_cable_can_be_pulled_from_the_hub(house: House) -> None:
    house.write("knocker.py", KNOCKER)
    run = house.train(f"""
framework: tensorflow
roles:
  chief: {{run: "until [ -e go ]; do sleep 0.05; done"}}
  worker: {{replicas: 2, run: python knocker.py}}
{PRIVATE}
""")
    wait_until(lambda: house.exists("there"))

    def switch(cable: str, to: str) -> None:
        words = [sys.executable, "-c", SWITCH, str(run.keeper("chief.0")), cable, to]
        subprocess.run(words, check=True)

    switch("worker.1", "off")
    wait_until(lambda: house.exists("away"))
    (house.project / "there").unlink()
    switch("worker.1", "on")
    wait_until(lambda: house.exists("there"))
    house.write("go", "")
    run.wait_for(Phase.FINISHED)


def test_a_replica_whose_end_was_a_signal_is_told_so(house: House) -> None:
    run = peers(house)
    os.kill(run.pid("worker.1"), signal.SIGKILL)
    run.wait_for(Phase.FAILED)
    assert run.cause.exit.signal == signal.SIGKILL
    assert str(run.cause.replica) == "worker.1"
