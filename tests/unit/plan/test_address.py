"""Valid and invalid addresses, `host:port`."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumline.plan.address import Address, parse_address, parse_addresses


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("a:2222", "a", 2222),
        ("10.1.10.58:12345", "10.1.10.58", 12345),
        ("digits-worker-0.digits.ns.svc:1", "digits-worker-0.digits.ns.svc", 1),
        ("my_host.:65535", "my_host.", 65535),
        ("[::1]:2222", "::1", 2222),
        ("[fe80::1%eth0]:2222", "fe80::1%eth0", 2222),
        ("fade:2222", "fade", 2222),
    ],
)
def test_an_address_is_a_host_and_a_port_and_reads_the_same_again(text: str, host: str, port: int) -> None:
    address = parse_address(text)
    assert address == Address(host, port)
    assert str(address) == text


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "an address is empty: write `host:port`"),
        ("a", "`a` has no port: write `a:2222`"),
        ("localhost", "`localhost` has no port: write `localhost:2222`"),
        ("[::1]", "`[::1]` has no port: write `[::1]:2222`"),
        ("2222", "`2222` has no host: write `host:2222`"),
        (":2222", "`:2222` has no host: write `host:2222`"),
        ("a:", "`a:` has no port number: write `a:2222`"),
        ("a:http", "`a:http` has no port number: write `a:2222`"),
        ("a:-1", "`a:-1` has no port number: write `a:2222`"),
        ("a:٣", r"`a:\u0663` has no port number: write `a:2222`"),
        ("[::1]:x", "`[::1]:x` has no port number: write `[::1]:2222`"),
        ("a:0", "`a:0` has a port outside 1 to 65535: 0 is any free port, and the others cannot know which"),
        ("a:65536", "`a:65536` has a port outside 1 to 65535"),
        ("a:002222", "`a:002222` has a port outside 1 to 65535"),
        ("a:" + "9" * 50, f"`a:{'9' * 50}` has a port outside 1 to 65535"),
        ("a :1", "`a :1` has a space in it: write `host:port`"),
        ("a:1\n", r"`a:1\n` has a space in it: write `host:port`"),
        ("grpc://a:1", "`grpc://a:1` is a URL: write `a:1`"),
        ("grpc://", "`grpc://` is a URL: write `host:port`"),
        ("::1", "`::1` is an IPv6 address without brackets: write `[::1]:2222`"),
        ("::1:81", "`::1:81` is an IPv6 address without brackets: write `[::1]:81`"),
        ("[fe80::11:81", "`[fe80::11:81` is not `host:port`: `[fe80::11` cannot be a host's name"),
        ("[a]:1", "`[a]:1` has no IPv6 address between its brackets"),
        ("[fe80::1%e;x]:1", "`[fe80::1%e;x]:1` has no IPv6 address between its brackets"),
        ("a:1:2", "`a:1:2` is not `host:port`: `a:1` cannot be a host's name"),
        ("-a:1", "`-a:1` is not `host:port`: `-a` cannot be a host's name"),
        ("$(a):1", "`$(a):1` is not `host:port`: `$(a)` cannot be a host's name"),
        ("300.1.1.1:1", "`300.1.1.1:1` is not `host:port`: `300.1.1.1` is not an IPv4 address"),
        ("x" * 99, f"`{'x' * 57}...` has no port: write `{'x' * 57}...`"),
    ],
)
def test_an_invalid_address_has_an_error_with_the_reason(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        parse_address(text)


def test_a_list_is_separated_by_commas_and_may_have_spaces() -> None:
    assert parse_addresses("a:1, [::1]:2 ,b:3") == [Address("a", 1), Address("::1", 2), Address("b", 3)]


def test_the_error_of_a_list_names_every_invalid_address() -> None:
    with pytest.raises(ValueError, match="`a` has no port") as caught:
        parse_addresses("a,b:1,,c:0x")
    assert str(caught.value).splitlines() == [
        "`a` has no port: write `a:2222`",
        "an address is empty: write `host:port`",
        "`c:0x` has no port number: write `c:2222`",
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a:1", "A:1"),
        ("a.b:1", "a.b.:1"),
        ("localhost:1", "127.0.0.1:1"),
        ("localhost:1", "[::1]:1"),
        ("127.0.0.1:1", "127.0.0.2:1"),
        ("0.0.0.0:1", "localhost.localdomain:1"),
        ("[2001:db8::1]:1", "[2001:0DB8:0::1]:1"),
        ("10.0.0.1:0001", "10.0.0.1:1"),
    ],
)
def test_two_spellings_of_one_address_are_the_same(one: str, other: str) -> None:
    assert parse_address(one).identity == parse_address(other).identity


@pytest.mark.parametrize(
    ("one", "other"),
    [("a:1", "a:2"), ("a:1", "b:1"), ("localhost:1", "10.0.0.1:1"), ("a.localdomain:1", "localhost:1")],
)
def test_different_addresses_are_not_the_same(one: str, other: str) -> None:
    assert parse_address(one).identity != parse_address(other).identity


@given(st.text())
def test_any_text_is_an_address_that_can_be_parsed_again_or_has_a_printable_error(text: str) -> None:
    try:
        address = parse_address(text)
    except ValueError as error:
        sentence = str(error)
    else:
        assert parse_address(str(address)) == address
        return
    assert sentence.isascii()
    assert sentence.isprintable() or "\x7f" in text
