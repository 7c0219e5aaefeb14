"""Hosts for tests: real sshd's, each in its own network, process and mount namespaces, on one bridge.

A host has an address, a home, a disk of a given size, and the programs of this machine. Inside `with`, the calling
process is in a network namespace that reaches only these hosts; all of it ends with the block. Needs root.
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

from hosts.host import OWN_PYTHON, Host, Process, is_sshd, processes_in

HOME = "/home/me"
SHARED = "/mnt/shared"
_NEW_NETWORK = 0x40000000
_LIBC = ctypes.CDLL(None, use_errno=True)
_BRIDGE = "drumline0"


class HostCluster:
    """Hosts for the time of a block: `with HostCluster(3) as host_cluster`.

    `env` is the environment of sessions on each host; DRUMLINE_GPUS simulates GPUs. `clocks` has the seconds by which
    the clocks of hosts are ahead of those of this machine.
    """

    def __init__(
        self,
        number: int,
        *,
        shared: bool = False,
        disk: str = "2g",
        env: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
        clocks: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        if os.geteuid() != 0:
            raise RuntimeError("network namespaces need root")
        self.folder = Path(tempfile.mkdtemp(prefix="drumline-hosts."))
        self.shared = self.folder / "shared"
        self.config = self.folder / "config"
        self.known_hosts = self.folder / "known_hosts"
        self.key = self.folder / "id"
        names = {f"h{n}": n for n in range(1, number + 1)}
        self.hosts = {name: Host(name, n, self.folder / name, clocks.get(name, 0)) for name, n in names.items()}
        self._env = env
        self._is_shared = shared
        self._disk = disk
        self._before = -1

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all hosts, as in the ssh configuration."""
        return tuple(self.hosts)

    @property
    def env(self) -> dict[str, str]:
        """Return the variables that drumline needs to reach the hosts."""
        return {"DRUMLINE_SSH_CONFIG": str(self.config)}

    def __enter__(self) -> Self:
        self._before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _check(_LIBC.unshare(_NEW_NETWORK))
            self._set_up()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for host in self.hosts.values():
            host.end()
        self._end_stragglers()
        _check(_LIBC.setns(self._before, _NEW_NETWORK))
        os.close(self._before)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _set_up(self) -> None:
        self.shared.mkdir()
        _make_key(self.key)
        for host in self.hosts.values():
            self._write(host)
            host.begin(str(self.shared) if self._is_shared else "", self._disk)
        self.trust(*self.hosts)
        self.config.write_text(self._configuration())
        for host in self.hosts.values():
            host.wait()
        _ip(
            "link set lo up",
            f"link add {_BRIDGE} type bridge",
            f"addr add 10.89.0.1/24 dev {_BRIDGE}",
            f"link set {_BRIDGE} up",
            *(line for host in self.hosts.values() for line in self._cable(host)),
        )
        for host in self.hosts.values():
            host.order(f"ip addr add {host.address}/24 dev eth0 && ip link set eth0 up && hostname {host.name}")
            if host.clock_seconds:
                host.set_clocks()
            host.order("sshd")

    def _cable(self, host: Host) -> Iterator[str]:
        yield f"link add {host.cable} type veth peer name eth0 netns {host.first}"
        yield f"link set {host.cable} master {_BRIDGE} up"

    def _write(self, host: Host) -> None:
        """Write the files of a host: its key, the authorized keys, and a user with a home on this host only."""
        host.folder.mkdir()
        _make_key(host.folder / "key")
        (host.folder / "authorized_keys").write_bytes(self.key.with_suffix(".pub").read_bytes())
        users = Path("/etc/passwd").read_text().splitlines()
        users = [line for line in users if not line.startswith(("root:", "sshd:"))]
        users += [f"root:x:0:0:root:{HOME}:/bin/bash", "sshd:x:104:65534::/run/sshd:/usr/sbin/nologin"]
        (host.folder / "passwd").write_text("\n".join(users) + "\n")
        (host.folder / "shadow").write_text("root:*:20000:0:99999:7:::\nsshd:!:20000::::::\n")
        (host.folder / "sshd_config").write_text(
            f"ListenAddress {host.address}\nHostKey /run/host/key\nAuthorizedKeysFile /run/host/authorized_keys\n"
            "PidFile /run/sshd/pid\nUsePAM no\nStrictModes no\nPasswordAuthentication no\nUseDNS no\n"
            "KbdInteractiveAuthentication no\nPrintMotd no\nPrintLastLog no\nMaxStartups 100\nPermitRootLogin yes\n"
        )
        own = {"PATH": f"{OWN_PYTHON}/bin:{_CLEAN['PATH']}"} if host.clock_seconds else {}
        env = {**_CLEAN, **own, **self._env.get(host.name, {})}
        told = " ".join(f'"{name}={value}"' for name, value in env.items())
        self.write_more(host.name, f"SetEnv {told}")

    def write_more(self, name: str, line: str) -> None:
        """Add a line to the configuration of a host's sshd, for its next start."""
        with (self.hosts[name].folder / "sshd_config").open("a") as file:
            file.write(f"{line}\n")

    def _configuration(self) -> str:
        each = [f"Host {host.name}\n  HostName {host.address}\n" for host in self.hosts.values()]
        return "".join(each) + (
            f"Host *\n  User root\n  IdentityFile {self.key}\n  IdentitiesOnly yes\n  IdentityAgent none\n"
            f"  UserKnownHostsFile {self.known_hosts}\n  StrictHostKeyChecking yes\n  BatchMode yes\n"
        )

    def trust(self, *names: str) -> None:
        """Write the current keys of these hosts, and no others, to `known_hosts`."""
        lines = []
        for name in names:
            kind, key = (self.hosts[name].folder / "key.pub").read_text().split()[:2]
            lines.append(f"{self.hosts[name].address} {kind} {key}\n")
        self.known_hosts.write_text("".join(lines))

    def run(self, name: str, *argv: str, check: bool = True) -> str:
        """Run a command on a host, without its sshd; return its output."""
        env = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": HOME}
        done = subprocess.run([*self.hosts[name].entrance, *argv], capture_output=True, text=True, env=env, check=False)
        if check and done.returncode:
            raise AssertionError(f"{' '.join(argv)} on {name}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def path(self, name: str, path: str) -> Path:
        """Return the path of a host's file on this machine."""
        return Path(f"/proc/{self.hosts[name].first}/root{path}")

    def link(self, name: str, *, up: bool) -> None:
        """Connect or disconnect a host's network; packets to a disconnected host are dropped silently."""
        host = self.hosts[name]
        # A failed lookup of its address may still be cached.
        again = [f"neigh flush to {host.address} dev {_BRIDGE}"] if up else []
        _ip(f"link set {host.cable} {'up' if up else 'down'}", *again)

    def kill_sshd(self, name: str) -> None:
        """Kill a host's sshd and all its sessions; processes that these started continue."""
        while sshds := list(filter(is_sshd, self._all(name))):  # one may start a session meanwhile
            for process in sshds:
                with suppress(ProcessLookupError):
                    gone = os.pidfd_open(process.pid)
                    with suppress(ProcessLookupError):
                        os.kill(process.pid, signal.SIGKILL)
                        select.select([gone], [], [])  # otherwise its port would still be in use
                    os.close(gone)

    def start_sshd(self, name: str) -> None:
        """Start a host's sshd again."""
        self.hosts[name].order("sshd")

    def new_host_key(self, name: str) -> None:
        """Give a host another key, as if it had been installed again, or were another host."""
        key = self.hosts[name].folder / "key"
        key.unlink()
        _make_key(key)
        self.kill_sshd(name)
        self.start_sshd(name)

    def fill_disk(self, name: str) -> None:
        """Fill the disk of a host's home."""
        self.run(name, "sh", "-c", f"cat /dev/zero > {HOME}/.full", check=False)

    def empty_disk(self, name: str) -> None:
        """Remove what filled the disk."""
        self.run(name, "rm", "-f", f"{HOME}/.full")

    def without_python(self, name: str) -> None:
        """Let sessions find every program of the machine except Python."""
        self.run(
            name,
            "sh",
            "-c",
            "mkdir /run/bin && for each in /usr/bin/* /bin/*; do case $each in */python*) ;;"
            ' *) ln -sf "$each" /run/bin/ ;; esac; done',
        )
        config = self.hosts[name].folder / "sshd_config"
        config.write_text(config.read_text().replace(_CLEAN["PATH"], "/run/bin"))
        self.kill_sshd(name)
        self.start_sshd(name)

    def processes(self, name: str) -> list[Process]:
        """Return the processes of a host, without its first process, sshd's, and zombies."""
        return [process for process in self._all(name) if not is_sshd(process)]

    def wait_idle(self, name: str, seconds: float = 30.0) -> None:
        """Return when no process runs on a host; raise AssertionError that names those left, if it takes longer."""
        ends = time.monotonic() + seconds
        while left := self.processes(name):
            with suppress(ProcessLookupError):
                gone = os.pidfd_open(left[0].pid)
                select.select([gone], [], [], max(0.0, ends - time.monotonic()))
                os.close(gone)
            assert time.monotonic() < ends, f"on {name} there still is {left}"

    def _all(self, name: str) -> list[Process]:
        first = self.hosts[name].first
        space = Path(f"/proc/{first}/ns/pid").readlink()
        return [each for each in processes_in("pid", space) if each.pid != first and each.argv]

    def _end_stragglers(self) -> None:
        """End the processes left in the launching namespace, such as supervisors; it ends with the last of them."""
        here = Path("/proc/thread-self/ns/net").readlink()
        if here == Path(f"/proc/self/fd/{self._before}").readlink():
            return  # the namespace was not made
        for each in processes_in("net", here):
            if each.pid != os.getpid():
                with suppress(ProcessLookupError):
                    os.kill(each.pid, signal.SIGKILL)


# Sessions have the environment of a separate host, without the variables of the tests.
_CLEAN = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "DRUMLINE_GPUS": ""}


def _make_key(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "drumline", "-f", str(path)], check=True)


def _ip(*lines: str) -> None:
    subprocess.run(["ip", "-batch", "-"], input="\n".join(lines), text=True, check=True)


def _check(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def main(words: Sequence[str]) -> int:
    """Run a command with N hosts: `[--shared] N COMMAND...`."""
    shared = words[:1] == ["--shared"]
    number, *command = words[shared:]
    for ends in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ends, lambda signal, _: sys.exit(128 + signal))
    with HostCluster(int(number), shared=shared) as host_cluster:
        sys.stderr.write(f"hosts: {', '.join(host_cluster.names)}; DRUMLINE_SSH_CONFIG={host_cluster.config}\n")
        return subprocess.run(command, env={**os.environ, **host_cluster.env}, check=False).returncode
