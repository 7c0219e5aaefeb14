"""A port has one claim at a time, and none while a server has it."""

from __future__ import annotations

import errno
import socket

import pytest

from drumline.engine.ports import claim_port


def listening(family: socket.AddressFamily, address: str) -> socket.socket:
    """A server that allows others beside it, as gRPC does."""
    server = socket.socket(family, socket.SOCK_STREAM)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    if family == socket.AF_INET6:
        server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    server.bind((address, 0))
    server.listen()
    return server


@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, ""), (socket.AF_INET6, "::")])
def test_a_port_is_not_claimed_while_a_server_has_it(family: socket.AddressFamily, address: str) -> None:
    if family == socket.AF_INET6 and not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    with listening(family, address) as server:
        port = server.getsockname()[1]
        assert claim_port(port) is None
    claim = claim_port(port)
    assert claim
    claim.close()


class SocketWithoutIpv6(socket.socket):
    """A socket on a machine without IPv6."""

    def __init__(self, family: int = socket.AF_INET, *more: int, **known: int) -> None:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        super().__init__(family, *more, **known)


def test_a_port_is_not_claimed_while_a_server_has_it_on_a_machine_without_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    with listening(socket.AF_INET, "") as server:
        monkeypatch.setattr(socket, "socket", SocketWithoutIpv6)
        assert claim_port(server.getsockname()[1]) is None


def test_a_claimed_port_is_free_for_its_server_and_for_no_other_claim() -> None:
    with listening(socket.AF_INET, "") as server:
        port = server.getsockname()[1]
    claim = claim_port(port)
    assert claim
    assert (claim.port, len(claim.descriptors)) == (port, 2)
    assert claim_port(port) is None
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        server.bind(("", port))
        server.listen()
    claim.close()
    again = claim_port(port)
    assert again
    again.close()
