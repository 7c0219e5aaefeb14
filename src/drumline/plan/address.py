"""Parse the addresses of replicas, `host:port`."""

from __future__ import annotations

import ipaddress
import re

from drumline.plan.parse import quote
from drumline.record import Record

_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?")
_NUMBERS = re.compile(r"[0-9.]+")
_IP = re.compile(r"[0-9A-Fa-f.:]+(%[A-Za-z0-9_.-]+)?")


class Address(Record):
    """A host and the port on it."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_local(self) -> bool:
        """Return whether this address means the machine on which it is used, as `localhost` does."""
        name = self.host.lower().rstrip(".")
        if name in ("localhost", "localhost.localdomain") or name.endswith(".localhost"):
            return True
        ip = _ip(self.host)
        return ip is not None and (ip.is_loopback or ip.is_unspecified)

    @property
    def identity(self) -> tuple[str, int]:
        """Return a key that is equal for all spellings of one address; all local addresses with one port are equal."""
        if self.is_local:
            return "localhost", self.port
        ip = _ip(self.host)
        return str(ip) if ip else self.host.lower().rstrip("."), self.port


def parse_address(text: str) -> Address:
    """Return the address `host:port` or `[ipv6]:port`; raise ValueError with a message about the mistake."""
    if not text:
        raise ValueError("an address is empty: write `host:port`")
    whole = quote(text)
    if text.split() != [text]:
        raise ValueError(f"{whole} has a space in it: write `host:port`")
    if "://" in text:
        rest = text.partition("://")[2]
        raise ValueError(f"{whole} is a URL: write {quote(rest or 'host:port')}")
    host, colon, port = text.rpartition(":")
    if _is_ip(text, 6):
        meant = f"[{host}]:{port}" if port.isdecimal() and _is_ip(host, 6) else f"[{text}]:2222"
        raise ValueError(f"{whole} is an IPv6 address without brackets: write {quote(meant)}")
    if text.isdecimal():
        raise ValueError(f"{whole} has no host: write {quote(f'host:{text}')}")
    if not colon or text.endswith("]"):
        raise ValueError(f"{whole} has no port: write {quote(f'{text}:2222')}")
    if not host:
        raise ValueError(f"{whole} has no host: write {quote(f'host:{port}')}")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        if not _is_ip(host, 6):
            raise ValueError(f"{whole} has no IPv6 address between its brackets")
    elif not _HOST.fullmatch(host):
        raise ValueError(f"{whole} is not `host:port`: {quote(host)} cannot be a host's name")
    elif _NUMBERS.fullmatch(host) and not _is_ip(host, 4):
        raise ValueError(f"{whole} is not `host:port`: {quote(host)} is not an IPv4 address")
    if not re.fullmatch(r"[0-9]+", port):
        raise ValueError(f"{whole} has no port number: write {quote(str(Address(host, 2222)))}")
    # At most five digits: Python refuses to read a number with thousands of them.
    if len(port) > 5 or not 0 < int(port) < 65536:
        why = ": 0 is any free port, and the others cannot know which" if not port.strip("0") else ""
        raise ValueError(f"{whole} has a port outside 1 to 65535{why}")
    return Address(host, int(port))


def parse_addresses(text: str) -> list[Address]:
    """Return the addresses in `a:2222,b:2222`; raise ValueError with one line for each part that is no address."""
    addresses, problems = [], []
    for part in text.split(","):
        try:
            addresses.append(parse_address(part.strip()))
        except ValueError as error:
            problems.append(str(error))
    if problems:
        raise ValueError("\n".join(problems))
    return addresses


def _is_ip(text: str, version: int) -> bool:
    ip = _ip(text)
    return ip is not None and ip.version == version


def _ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    # The part after a `%` names a network interface; the library accepts any text there.
    if not _IP.fullmatch(text):
        return None
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
