"""Compare the answers of hosts with the needs of a plan. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from drumline.engine.doctor_checks import MISSING, NOTE, OK, PACKAGES, DoctorCheck, missing_framework
from drumline.engine.ssh.assign import HostResources, assign, usable_resources
from drumline.engine.ssh.plan_options import Host, Hosts
from drumline.errors import InputError
from drumline.plan.types import Plan
from drumline.record import Record
from drumline.words import count, format_duration, listed, size

_LITTLE_BYTES = 1 << 30
_TOO_LITTLE_BYTES = 16 << 20
_SKEW_SECONDS = 1.0
_MOST_NAMED = 5


class HostReport(Record):
    """The answers of a host; if it did not answer, only the error."""

    host: Host
    error: str = ""
    hint: str = ""
    address: str = ""
    version: str = ""  # of its Python
    python: str = ""
    packages: Mapping[str, str] = MappingProxyType({})
    folder: str = ""
    free_bytes: int = 0
    is_writable: bool = True
    resources: HostResources = HostResources()
    skew_seconds: float = 0.0  # by which its clock is ahead of this machine's

    @property
    def name(self) -> str:
        """Return the host's name for ssh."""
        return self.host.name


def check_host(found: HostReport) -> DoctorCheck:
    """Check that a host can be reached and used, and describe it."""
    if found.error:
        return DoctorCheck(found.name, MISSING, found.error, found.hint)
    own = found.resources
    gpus = count(own.gpus, "GPU") if own.gpus else "no GPU"
    words = f"{found.address}, Python {found.version}, {own.cpus:g} cores, {size(own.memory_bytes or 0)} of memory"
    return DoctorCheck(found.name, OK, f"{words}, {gpus}")


def check_pythons(hosts: Sequence[HostReport]) -> DoctorCheck:
    """Check that all hosts have the same Python; the patch version does not matter."""
    by_version = _grouped({each.name: ".".join(each.version.split(".")[:2]) for each in hosts})
    if len(by_version) == 1:
        return DoctorCheck("python", OK, f"{next(iter(by_version))} on every host")
    hint = "name one that all of them have: `ssh: {python: PATH}`"
    return DoctorCheck("python", NOTE, f"not the same everywhere: {_describe_groups(by_version)}", hint)


def check_packages(hosts: Sequence[HostReport], plan: Plan) -> DoctorCheck | None:
    """Check that all hosts have the same version of the framework; return None if the plan needs no framework."""
    if not PACKAGES[plan.framework]:
        return None
    if plan.environment:
        return DoctorCheck(plan.framework, OK, f"in an environment of the run: {plan.environment}")
    without = [each.name for each in hosts if not each.packages]
    if without:
        return missing_framework(
            plan.framework, f"it is not installed for the Python of {_some(without)}", "install it there"
        )
    by_version = _grouped({each.name: ", ".join(each.packages.values()) for each in hosts})
    if len(by_version) == 1:
        return DoctorCheck(plan.framework, OK, f"{next(iter(by_version))} on every host")
    return missing_framework(
        plan.framework, f"not the same everywhere: {_describe_groups(by_version)}", "install one version"
    )


def check_clocks(hosts: Sequence[HostReport]) -> DoctorCheck:
    """Check that the clocks of hosts agree with this machine's."""
    wrong = [each for each in hosts if abs(each.skew_seconds) >= _SKEW_SECONDS]
    if not wrong:
        return DoctorCheck("clocks", OK, f"within {format_duration(_SKEW_SECONDS, parts=1)} of this machine's")
    words = [
        f"{each.name} is {format_duration(abs(each.skew_seconds))} {'fast' if each.skew_seconds > 0 else 'slow'}"
        for each in wrong
    ]
    differences = f"compared with this machine's: {_some(words)}"
    return DoctorCheck("clocks", NOTE, differences, "`timedatectl set-ntp true` there")


def check_disks(hosts: Sequence[HostReport]) -> DoctorCheck:
    """Check that the folder of runs can be written, and that its disk has free space."""
    hint = "make room there, or name another folder: `ssh: {folder: PATH}`"
    not_writable = [f"{each.folder} on {each.name}" for each in hosts if not each.is_writable]
    if not_writable:
        return DoctorCheck("disk", MISSING, f"cannot be written: {_some(not_writable)}", hint)
    least = min(hosts, key=lambda each: each.free_bytes)
    words = f"{size(least.free_bytes)} free in {least.folder} on {least.name}"
    if least.free_bytes < _TOO_LITTLE_BYTES:
        return DoctorCheck("disk", MISSING, words, hint)
    if least.free_bytes < _LITTLE_BYTES:
        return DoctorCheck("disk", NOTE, words, hint)
    return DoctorCheck("disk", OK, f"at least {words}" if len(hosts) > 1 else words)


def check_gpus(hosts: Sequence[HostReport], plan: Plan | None) -> DoctorCheck:
    """Check that each host has the number of GPUs that the spec sets, and that there is one if the plan needs GPUs."""
    fewer = [
        f"{each.host.gpus} are configured on {each.name}, {each.resources.gpus} are found"
        for each in hosts
        if (each.host.gpus or 0) > (each.resources.gpus or 0)
    ]
    hint = "`nvidia-smi` shows on a host what its driver sees"
    if fewer:
        return DoctorCheck("gpus", MISSING, _some(fewer), hint)
    asked = sum(replica.resources.gpus or 0 for replica in plan.replicas) if plan else 0
    by_number = _grouped({each.name: str(each.resources.gpus or "none") for each in hosts})
    words = f"{next(iter(by_number))} on every host" if len(by_number) == 1 else _describe_groups(by_number)
    if asked and list(by_number) == ["none"]:
        return DoctorCheck("gpus", MISSING, f"none on any host, and the run asks for {asked}", hint)
    return DoctorCheck("gpus", OK, words)


def check_ports(taken: Mapping[str, Sequence[int]], troubles: Mapping[str, Sequence[str]], tried: int) -> DoctorCheck:
    """Check that every host reaches every other.

    `taken` are ports by host, `troubles` are failed connections by calling host, of the number that was `tried`.
    """
    busy = [f"{port} on {name}" for name, ports in taken.items() for port in ports]
    if busy:
        hint = "end the programs that have them, or give the hosts another `port`"
        return DoctorCheck("ports", MISSING, f"taken by other programs: {_some(busy)}", hint)
    failures = [f"from {name} to {trouble}" for name, several in troubles.items() for trouble in several]
    if failures:
        hint = (
            "let these ports pass in the firewall between the hosts, or give each a `port` that passes; if an address"
            " is wrong, give that host an `address` at which the others reach it"
        )
        failed = f"{count(len(failures), 'connection')} of {tried} failed"
        return DoctorCheck("ports", MISSING, f"{failed}: {_some(failures)}", hint)
    if tried == 1:
        return DoctorCheck("ports", OK, "the host reaches itself at its address")
    return DoctorCheck("ports", OK, f"every host reaches every other, {tried} connections tried")


def check_shared(hosts: Hosts, troubles: Sequence[str]) -> DoctorCheck:
    """Check that the shared folder is the same on every host."""
    if hosts.shared is None:
        if len(hosts.all) == 1:
            return DoctorCheck("shared folder", OK, "not needed: there is only one host")
        words = "none is configured: each host has its own OUTPUT_DIR, and the chief's is copied to this machine"
        return DoctorCheck("shared folder", NOTE, words, "if they have one, name it: `ssh: {shared: PATH}`")
    if troubles:
        return DoctorCheck(
            "shared folder",
            MISSING,
            f"{hosts.shared} is not shared: {_some(troubles)}",
            "mount it on every host, or leave out `shared`",
        )
    return DoctorCheck("shared folder", OK, f"{hosts.shared}: what one host writes, every other reads")


def check_room(hosts: Sequence[HostReport], plan: Plan) -> DoctorCheck:
    """Check that the hosts have the resources for all replicas; return the number of replicas for each host."""
    try:
        assigned = assign(plan, {each.name: usable_resources(each.host, each.resources) for each in hosts})
    except InputError as error:
        return DoctorCheck("room", MISSING, error.message, error.hint)
    shares = [(name, list(assigned.values()).count(name)) for name in dict.fromkeys(assigned.values())]
    return DoctorCheck("room", OK, _some([f"{count(number, 'replica')} on {name}" for name, number in shares]))


def _grouped(values: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the names by value, the most frequent value first."""
    groups: dict[str, list[str]] = {}
    for name, value in values.items():
        groups.setdefault(value, []).append(name)
    return dict(sorted(groups.items(), key=lambda item: -len(item[1])))


def _describe_groups(groups: Mapping[str, Sequence[str]]) -> str:
    return ", ".join(f"{value} on {_some(names)}" for value, names in groups.items())


def _some(words: Sequence[str]) -> str:
    more = len(words) - _MOST_NAMED
    return listed([*words[:_MOST_NAMED], f"{more} more"] if more > 0 else words)
