"""Numbers as people say them."""

from __future__ import annotations

import pytest

from drumline.words import size


@pytest.mark.parametrize(
    ("amount", "words"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (67_104_768, "64.0 MiB"),
        (512 << 20, "512.0 MiB"),
        (1536 << 20, "1.5 GiB"),
        (3 << 40, "3.0 TiB"),
        (5000 << 40, "5000.0 TiB"),
    ],
)
def test_an_amount_of_memory_has_one_decimal(amount: int, words: str) -> None:
    assert size(amount) == words
