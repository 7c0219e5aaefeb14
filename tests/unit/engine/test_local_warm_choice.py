"""Whether a first launch waits for its warm process."""

from __future__ import annotations

import pytest

from drumline.engine.local.warm.choice import is_worth_waiting


@pytest.mark.parametrize(
    ("framework", "replicas", "cpus", "waits"),
    [
        pytest.param("torch", 2, 16.0, False, id="cores to spare"),
        pytest.param("jax", 8, 16.0, False, id="two cores for each"),
        pytest.param("jax", 9, 16.0, True, id="less than two for each"),
        pytest.param("torch", 2, 2.0, True, id="one core for each"),
        pytest.param("torch", 1, 2.0, False, id="alone on two cores"),
        pytest.param("plain", 1, 1.5, True, id="a quota"),
        pytest.param("tensorflow", 1, 64.0, True, id="TensorFlow, which a warm process imports in less time"),
    ],
)
def test_a_first_launch_waits_for_its_warm_process_if_that_is_faster(
    framework: str,
    replicas: int,
    cpus: float,
    waits: bool,
) -> None:
    assert is_worth_waiting(framework, replicas, cpus) is waits
