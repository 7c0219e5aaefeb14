"""Networks without runs: the kernel lists the links that were made, and a later network joins an existing hub."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from drumline.engine.local.network import NamespaceDescriptors, Network
from drumline.engine.protocol import Site
from drumline.engine.registry import open_engine
from drumline.plan.bind import bind
from drumline.plan.types import Launch, ReplicaId
from drumline.run.traces import TRACE, trace_dir
from scaffold.plans import plan_of

pytestmark = pytest.mark.usefixtures("private_networks")

FIRST, SECOND, THIRD = (ReplicaId("worker", index) for index in range(3))

ENTER = """
import errno, os, socket, struct, sys
from drumline.engine.local.netlink import Netlink
from drumline.runtime.keeper import enter_namespace
for descriptor in sys.argv[1].split():
    enter_namespace(int(descriptor))
"""
SERVE = """
server = socket.create_server(("", 2222))
print("serves", flush=True)
while True:
    server.accept()
"""
LOOK = """
import fcntl
def flags(name):
    with socket.socket() as asker:
        return struct.unpack_from("16sH", fcntl.ioctl(asker, 0x8913, struct.pack("16sH14x", name.encode(), 0)))[1]
def address(name, request):
    with socket.socket() as asker:
        return socket.inet_ntoa(fcntl.ioctl(asker, request, struct.pack("16s16x", name.encode()))[20:24])
names = [name for _, name in socket.if_nameindex() if name in ("lo", "eth0", "hub") or "." in name]
print(socket.gethostname(), *(name for name in names if flags(name) & 1))
if "eth0" in names:
    print(address("eth0", 0x8915), address("eth0", 0x891B))
"""


def launches(tmp_path: Path) -> tuple[Launch, ...]:
    engine = open_engine("local", Site(tmp_path, tmp_path / "home", 2))
    plan = plan_of("roles: {worker: 3}\nengine: {local: {network: private}}")
    return bind(plan, asyncio.run(engine.place(plan)))


@contextmanager
def network(tmp_path: Path) -> Iterator[Network]:
    made = Network(tmp_path, launches(tmp_path))
    asyncio.run(made.connect())
    try:
        yield made
    finally:
        made.close()


def start_inside(enter: Sequence[int], code: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", ENTER + code, " ".join(map(str, enter))]
    return subprocess.Popen(words, pass_fds=enter, stdout=subprocess.PIPE, text=True)


def say(enter: Sequence[int], code: str) -> list[str]:
    """Return what lines of Python print in these namespaces."""
    out, _ = start_inside(enter, code).communicate(timeout=60)
    return out.splitlines()


@contextmanager
def serving(door: NamespaceDescriptors) -> Iterator[None]:
    with start_inside(door.enter, SERVE) as server:
        try:
            assert server.stdout
            assert server.stdout.readline() == "serves\n"
            yield
        finally:
            server.kill()


@contextmanager
def kept(tmp_path: Path, replica: ReplicaId, door: NamespaceDescriptors) -> Iterator[None]:
    """Run a process that holds these descriptors, with the trace of a keeper, until the end of the block."""
    path = tmp_path / trace_dir(replica, 0) / TRACE
    path.parent.mkdir(parents=True)
    with subprocess.Popen(["sleep", "1000"], pass_fds=door.held) as keeper, path.open("w") as trace:
        fcntl.flock(trace, fcntl.LOCK_EX)
        trace.write(json.dumps({"keeper": keeper.pid}) + "\n")
        trace.flush()
        try:
            yield
        finally:
            keeper.kill()


def greeting(host: str) -> str:
    """Return lines of Python that connect to this address and print the name of the error."""
    return f"""
try:
    socket.create_connection(("{host}", 2222), timeout=30)
    print("connected")
except OSError as error:
    print(errno.errorcode[error.errno])
"""


def test_each_replica_has_a_host_name_a_loopback_and_a_link_with_its_address(tmp_path: Path) -> None:
    with network(tmp_path) as made:
        for number, replica in enumerate((FIRST, SECOND, THIRD), start=1):
            looked = say(made.namespaces(replica).enter, LOOK)
            assert looked == [f"10.77.0.{number} lo eth0", f"10.77.0.{number} 255.255.0.0"]


def test_the_hub_has_a_bridge_and_one_link_named_after_each_replica(tmp_path: Path) -> None:
    with network(tmp_path) as made:
        (looked,) = say(made.namespaces(FIRST).held, LOOK)
        assert looked.split()[1:] == ["hub", "worker.0", "worker.1", "worker.2"]


def test_a_refusal_of_the_kernel_is_an_error_with_its_number(tmp_path: Path) -> None:
    again = """
with Netlink() as wires:
    for ask in (lambda: wires.add_bridge("hub"), lambda: wires.delete("other"), lambda: wires.set_up(4711)):
        try:
            ask()
        except OSError as error:
            print(errno.errorcode[error.errno])
    wires.delete("worker.2")
"""
    with network(tmp_path) as made:
        assert say(made.namespaces(FIRST).held, again) == ["EEXIST", "ENODEV", "ENODEV"]
        assert say(made.namespaces(THIRD).enter, LOOK) == ["10.77.0.3 lo"]


def test_a_connection_to_a_replica_that_does_not_listen_is_refused_at_once(tmp_path: Path) -> None:
    """Frameworks repeat a refused connection, and give up if a host is unreachable."""
    with network(tmp_path) as made:
        assert say(made.namespaces(FIRST).enter, greeting("10.77.0.2")) == ["ECONNREFUSED"]


def test_a_later_network_joins_the_hub_of_a_running_keeper(tmp_path: Path) -> None:
    with network(tmp_path) as made:
        door = made.namespaces(FIRST)
        with kept(tmp_path, FIRST, door), serving(door):
            made.close()  # as after the death of the supervisor: no process holds the namespaces of the others
            with network(tmp_path) as joined:
                assert say(joined.namespaces(SECOND).enter, greeting("10.77.0.1")) == ["connected"]
                assert say(joined.namespaces(THIRD).enter, greeting("10.77.0.1")) == ["connected"]
                assert say(joined.namespaces(THIRD).enter, greeting("10.77.0.2")) == ["ECONNREFUSED"]
                with pytest.raises(KeyError):
                    joined.namespaces(FIRST)


def test_without_a_running_keeper_a_new_hub_is_made(tmp_path: Path) -> None:
    with network(tmp_path) as made, serving(made.namespaces(FIRST)):
        with kept(tmp_path, FIRST, made.namespaces(FIRST)):
            pass
        with network(tmp_path) as other:
            (answer,) = say(other.namespaces(SECOND).enter, greeting("10.77.0.1"))
            assert answer == errno.errorcode[errno.EHOSTUNREACH]


def held_here() -> list[str]:
    """Return the namespaces that this process has open."""
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return [target for link in links if (target := os.readlink(link)).startswith(("user:", "net:", "uts:"))]  # noqa: PTH115


def test_closing_a_network_leaves_no_open_descriptor(tmp_path: Path) -> None:
    with network(tmp_path) as made:
        made.namespaces(FIRST)
        assert len(held_here()) == 2 + 3 * 2
    assert held_here() == []
