"""Amounts as Kubernetes writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumline.engine.kubernetes.quantity import cores, quantity
from drumline.spec.quantity import parse_quantity


@pytest.mark.parametrize(
    ("amount", "text"),
    [(1024**3, "1Gi"), (1536 * 1024**2, "1536Mi"), (500 * 1000**2, "500M"), (1000, "1k"), (1025, "1025"), (1, "1")],
)
def test_bytes_have_the_largest_unit_that_keeps_them_whole(amount: int, text: str) -> None:
    assert quantity(amount) == text


@given(st.integers(1, 1024**6))
def test_bytes_are_exact(amount: int) -> None:
    text = quantity(amount)
    digits = text.rstrip("KMGTPki")
    assert int(digits) * round(parse_quantity(f"1{text[len(digits) :]}") or 0) == amount


@pytest.mark.parametrize(
    ("cpus", "text"),
    [(1, "1"), (0.5, "500m"), (1.5, "1500m"), (0.01, "10m"), (0.0001, "1m"), (2.0, "2"), (0.1 * 3, "300m")],
)
def test_cores_are_thousandths_rounded_up(cpus: float, text: str) -> None:
    assert cores(cpus) == text


@given(st.floats(0.01, 10_000))
def test_a_request_is_never_fewer_cores_than_in_the_spec(cpus: float) -> None:
    assert cpus - 1e-6 <= (parse_quantity(cores(cpus)) or 0) < cpus + 0.0011
