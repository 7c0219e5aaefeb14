"""The hosts of these tests have the properties that the other tests rely on."""

from __future__ import annotations

import re
import socket
import subprocess
from pathlib import Path

import pytest

from hosts.host_cluster import HOME, SHARED, HostCluster
from scaffold.waiting import wait_until


def ssh(host_cluster: HostCluster, name: str, command: str, *, seconds: int = 60) -> subprocess.CompletedProcess[str]:
    words = ["ssh", "-F", str(host_cluster.config), "-o", f"ConnectTimeout={seconds}", name, command]
    return subprocess.run(words, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)


def test_the_hosts_of_the_test_cluster_are_separate(host_cluster: HostCluster) -> None:
    told = [ssh(host_cluster, name, "hostname; pwd; ls /tmp; touch /tmp/mine ~/mine") for name in host_cluster.names]
    assert [each.stdout.split() for each in told] == [[name, HOME] for name in host_cluster.names]
    for name in host_cluster.names:
        host_cluster.wait_idle(name)


def test_a_folder_is_shared_and_homes_are_not(host_cluster: HostCluster) -> None:
    ssh(host_cluster, "h1", f"echo all > {SHARED}/file; echo own > ~/file")
    assert ssh(host_cluster, "h2", f"cat {SHARED}/file").stdout == "all\n"
    assert ssh(host_cluster, "h2", "cat ~/file").returncode == 1
    assert host_cluster.path("h1", f"{HOME}/file").read_text() == "own\n"


def test_hosts_reach_each_other_and_nothing_outside(host_cluster: HostCluster) -> None:
    assert (
        "SSH-2.0"
        in ssh(host_cluster, "h1", f"exec 3<>/dev/tcp/{host_cluster.hosts['h2'].address}/22; head -1 <&3").stdout
    )
    with pytest.raises(OSError, match="unreachable"):
        socket.create_connection(("192.0.2.1", 80), timeout=5)
    assert "unreachable" in ssh(host_cluster, "h1", "exec 3<>/dev/tcp/192.0.2.1/80").stderr


def test_a_disconnected_host_is_silent_and_can_be_connected_again(host_cluster: HostCluster) -> None:
    host_cluster.link("h2", up=False)
    # On a busy machine the kernel may already have given up resolving the address.
    assert re.search("timed out|No route to host", ssh(host_cluster, "h2", "true", seconds=2).stderr)
    host_cluster.link("h2", up=True)
    assert ssh(host_cluster, "h2", "true").returncode == 0


def test_processes_of_a_session_outlive_a_killed_sshd_and_are_listed(host_cluster: HostCluster) -> None:
    ssh(host_cluster, "h3", "setsid sleep 1000 > /dev/null 2>&1 < /dev/null &")
    host_cluster.kill_sshd("h3")
    assert "refused" in ssh(host_cluster, "h3", "true").stderr
    wait_until(lambda: [each.argv for each in host_cluster.processes("h3")] == [("sleep", "1000")])
    host_cluster.start_sshd("h3")
    assert ssh(host_cluster, "h3", "pkill -9 sleep").returncode == 0
    host_cluster.wait_idle("h3")


def test_a_host_of_the_test_cluster_can_lack_python_or_disk_space_or_change_its_key() -> None:
    with HostCluster(2, disk="4m") as host_cluster:
        host_cluster.without_python("h1")
        assert ssh(host_cluster, "h1", "python3 -V").returncode == 127
        assert ssh(host_cluster, "h2", "python3 -V").returncode == 0
        host_cluster.fill_disk("h2")
        assert "No space left" in ssh(host_cluster, "h2", "echo x > ~/x").stderr
        host_cluster.empty_disk("h2")
        assert ssh(host_cluster, "h2", "echo x > ~/x").returncode == 0
        host_cluster.new_host_key("h2")
        assert "REMOTE HOST IDENTIFICATION HAS CHANGED" in ssh(host_cluster, "h2", "true").stderr
        host_cluster.trust(*host_cluster.names)
        assert ssh(host_cluster, "h2", "true").returncode == 0


def test_nothing_is_left_of_a_host_cluster() -> None:
    before = Path("/proc/thread-self/ns/net").readlink()
    with HostCluster(1) as host_cluster:
        inside = Path("/proc/thread-self/ns/net").readlink()
        ssh(host_cluster, "h1", "setsid sleep 1000 > /dev/null 2>&1 < /dev/null &")
        (there,) = host_cluster.processes("h1")
        here = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    assert here.wait() == -9
    assert not Path(f"/proc/{there.pid}").exists()
    assert not host_cluster.folder.exists()
    assert inside != Path("/proc/thread-self/ns/net").readlink() == before
