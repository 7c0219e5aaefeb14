"""The hosts that all else here is tried on are what they are taken for."""

from __future__ import annotations

import re
import socket
import subprocess
from pathlib import Path

import pytest

from hosts.world import HOME, SHARED, World
from integration.local.runs import wait_until


def ssh(world: World, name: str, command: str, *, seconds: int = 60) -> subprocess.CompletedProcess[str]:
    words = ["ssh", "-F", str(world.config), "-o", f"ConnectTimeout={seconds}", name, command]
    return subprocess.run(words, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)


def test_every_host_is_one_of_its_own(world: World) -> None:
    told = [ssh(world, name, "hostname; pwd; ls /tmp; touch /tmp/mine ~/mine") for name in world.names]
    assert [each.stdout.split() for each in told] == [[name, HOME] for name in world.names]
    for name in world.names:
        world.wait_idle(name)


def test_a_folder_is_shared_and_homes_are_not(world: World) -> None:
    ssh(world, "h1", f"echo all > {SHARED}/file; echo own > ~/file")
    assert ssh(world, "h2", f"cat {SHARED}/file").stdout == "all\n"
    assert ssh(world, "h2", "cat ~/file").returncode == 1
    assert world.path("h1", f"{HOME}/file").read_text() == "own\n"


def test_hosts_reach_each_other_and_nobody_reaches_the_rest_of_the_world(world: World) -> None:
    assert "SSH-2.0" in ssh(world, "h1", f"exec 3<>/dev/tcp/{world.hosts['h2'].address}/22; head -1 <&3").stdout
    with pytest.raises(OSError, match="unreachable"):
        socket.create_connection(("192.0.2.1", 80), timeout=5)
    assert "unreachable" in ssh(world, "h1", "exec 3<>/dev/tcp/192.0.2.1/80").stderr


def test_a_pulled_cable_is_silent_and_can_be_put_back(world: World) -> None:
    world.link("h2", up=False)
    # A machine that is busy may take so long to say so that the kernel has given up to ask for its address.
    assert re.search("timed out|No route to host", ssh(world, "h2", "true", seconds=2).stderr)
    world.link("h2", up=True)
    assert ssh(world, "h2", "true").returncode == 0


def test_what_a_session_began_outlives_a_killed_sshd_and_is_seen(world: World) -> None:
    ssh(world, "h3", "setsid sleep 1000 > /dev/null 2>&1 < /dev/null &")
    world.kill_sshd("h3")
    assert "refused" in ssh(world, "h3", "true").stderr
    wait_until(lambda: [each.argv for each in world.processes("h3")] == [("sleep", "1000")])
    world.start_sshd("h3")
    assert ssh(world, "h3", "pkill -9 sleep").returncode == 0
    world.wait_idle("h3")


def test_a_host_can_be_without_python_disk_or_its_old_key() -> None:
    with World(2, disk="4m") as world:
        world.without_python("h1")
        assert ssh(world, "h1", "python3 -V").returncode == 127
        assert ssh(world, "h2", "python3 -V").returncode == 0
        world.fill_disk("h2")
        assert "No space left" in ssh(world, "h2", "echo x > ~/x").stderr
        world.empty_disk("h2")
        assert ssh(world, "h2", "echo x > ~/x").returncode == 0
        world.new_host_key("h2")
        assert "REMOTE HOST IDENTIFICATION HAS CHANGED" in ssh(world, "h2", "true").stderr
        world.trust(*world.names)
        assert ssh(world, "h2", "true").returncode == 0


def test_nothing_is_left_of_a_world() -> None:
    before = Path("/proc/thread-self/ns/net").readlink()
    with World(1) as world:
        inside = Path("/proc/thread-self/ns/net").readlink()
        ssh(world, "h1", "setsid sleep 1000 > /dev/null 2>&1 < /dev/null &")
        (there,) = world.processes("h1")
        here = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    assert here.wait() == -9
    assert not Path(f"/proc/{there.pid}").exists()
    assert not world.folder.exists()
    assert inside != Path("/proc/thread-self/ns/net").readlink() == before
