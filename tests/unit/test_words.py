"""Numbers as people say them, and texts as a terminal may show them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumline.words import printable, size


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


@given(st.text(max_size=20))
def test_what_is_shown_cannot_steer_a_terminal(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert shown == text or not text.isprintable()
    shown.encode()
