"""The bytes of netlink requests; tests/integration/local/test_joining.py sends them to the kernel."""

from __future__ import annotations

import pytest

from drumline.engine.local.netlink import attribute


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"", "0400 0300"),
        (b"lo\0", "0700 0300 6c6f0000"),
        (b"eth\0", "0800 0300 65746800"),
        (b"hub.0\0", "0a00 0300 6875622e 30000000"),
    ],
)
def test_a_netlink_attribute_has_its_length_and_is_padded_to_four_bytes(value: bytes, expected: str) -> None:
    little = bytes.fromhex(expected)
    assert attribute(3, value) == little
    assert len(attribute(3, attribute(1, value))) == len(little) + 4
