"""A private network: its replicas reach each other, no other process reaches them, and nothing leaves it."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from drumline.engine.ports import PortClaim, claim_port
from drumline.run.event import AttemptPlaced
from drumline.run.state import Phase
from scaffold.peers import PRIVATE, end, peers
from scaffold.workspace import Workspace

pytestmark = pytest.mark.usefixtures("private_networks")


@pytest.fixture
def port() -> Iterator[int]:
    """Return a port on which no process of this machine listens, now or later."""
    claim: PortClaim | None = next(filter(None, map(claim_port, range(31_000, 32_000))))
    assert claim
    yield claim.port
    claim.close()


def reach(address: tuple[str, int]) -> str:
    """Connect from this process, but never through a gateway: no packet of a test leaves the machine."""
    with socket.socket() as client:
        client.settimeout(30)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_DONTROUTE, 1)
        client.connect(address)
        return client.recv(64).decode()


def test_replicas_in_a_private_network_reach_each_other_at_their_own_addresses_and_the_same_port(
    each_user: Workspace,
) -> None:
    run = peers(each_user, workers=3)
    addresses = ["10.77.0.1:2222", "10.77.0.2:2222", "10.77.0.3:2222"]
    assert [event.addresses for event in run.events if isinstance(event, AttemptPlaced)] == [tuple(addresses)]
    greeted = str(dict.fromkeys(addresses, run.id)).replace("'", '"')
    uid = each_user.project.stat().st_uid
    for index in range(3):
        told = f'{{"host": "10.77.0.{index + 1}", "uid": {uid}, "greeted": {greeted}}}\n'
        assert run.log(f"worker.{index}").decode() == told
        assert (each_user.project / f"met-{run.id}-0-{index}").stat().st_uid == uid
    end(run)
    run.wait_for(Phase.FINISHED)


def test_no_process_outside_reaches_them(workspace: Workspace, port: int) -> None:
    run = peers(workspace, port=port)
    with pytest.raises(ConnectionRefusedError):
        reach(("127.0.0.1", port))
    for host in ("10.77.0.1", "10.77.0.2"):
        with pytest.raises(OSError, match="unreachable"):
            reach((host, port))
    end(run)
    run.wait_for(Phase.FINISHED)


def test_in_the_shared_network_every_process_reaches_them(workspace: Workspace, port: int) -> None:
    """The connection that the test above refuses is possible in a shared network."""
    run = peers(workspace, port=port, workers=1, network="tensorflow: {tf_config: always}")
    assert reach(("127.0.0.1", port)) == run.id
    end(run)
    run.wait_for(Phase.FINISHED)


def test_private_networks_of_two_runs_have_the_same_addresses_and_no_connection(workspace: Workspace) -> None:
    runs = [peers(workspace) for _ in range(2)]
    for run in runs:
        assert f'"10.77.0.2:2222": "{run.id}"' in run.log("worker.0").decode()
        end(run)
        run.wait_for(Phase.FINISHED)


def test_a_private_network_has_no_outside_connection_and_its_own_loopback(workspace: Workspace) -> None:
    workspace.write(
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
        run = workspace.train(f"run: {{argv: [python, out.py]}}\n{PRIVATE}\nenv: {{SERVED: {served}}}")
        run.wait_for(Phase.FINISHED)
    assert run.log("worker.0").decode() == "Network is unreachable\nConnection refused\n"


def test_data_is_prepared_outside_the_private_network(workspace: Workspace) -> None:
    workspace.write("fetch.py", "import os, socket; socket.create_connection(('127.0.0.1', int(os.environ['SERVED'])))")
    with socket.create_server(("127.0.0.1", 0)) as server:
        run = workspace.train(f"""
{PRIVATE}
data: {{path: data, prepare: python fetch.py}}
run: test -d $DATA_DIR && python fetch.py
env: {{SERVED: {server.getsockname()[1]}}}
""")
        run.wait_for(Phase.FAILED)
        server.accept()[0].close()
    assert b"ConnectionRefusedError" in run.log("worker.0")


def test_in_a_private_network_files_of_other_users_belong_to_the_overflow_user(stranger: Workspace) -> None:
    run = stranger.train(f"run: touch mine; stat -c %u mine /; id -u\n{PRIVATE}")
    run.wait_for(Phase.FINISHED)
    own = (stranger.project / "mine").stat().st_uid
    overflow = Path("/proc/sys/kernel/overflowuid").read_text().strip()
    assert run.log("worker.0").decode().split() == [str(own), overflow, str(own)]


def test_in_a_private_network_root_keeps_its_rights_over_files(workspace: Workspace) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root has them")
    secret = workspace.write("secret", "sesame")
    os.chown(secret, 61234, 61234)
    secret.chmod(0o600)
    run = workspace.train(f"run: cat secret; stat -c ' %u' secret; chown 61235 secret\n{PRIVATE}")
    run.wait_for(Phase.FINISHED)
    assert run.log("worker.0").decode() == "sesame 61234\n"
    assert secret.stat().st_uid == 61235


def test_only_the_user_of_the_run_can_enter_its_private_network(stranger: Workspace, workspace: Workspace) -> None:
    run = peers(workspace)
    enter = ["nsenter", f"--net=/proc/{run.pid('worker.0')}/ns/net", "true"]
    assert subprocess.run(enter, capture_output=True, check=False).returncode == 0
    assert subprocess.run([*stranger.command_prefix, *enter], capture_output=True, check=False).returncode != 0
    end(run)
    run.wait_for(Phase.FINISHED)
