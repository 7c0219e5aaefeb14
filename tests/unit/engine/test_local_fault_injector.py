"""A drill on this machine can cut only private networks."""

from __future__ import annotations

from drumline.engine.local.fault_injector import LocalFaultInjector
from drumline.run.drill import Fault
from scaffold.plans import plan_of

PRIVATE = "engine: {local: {network: private}}"


def test_a_private_network_can_be_cut() -> None:
    assert LocalFaultInjector().find_problem(plan_of(f"roles: {{worker: 2}}\n{PRIVATE}"), Fault.CUT) is None


def test_a_network_that_others_use_cannot_be_cut() -> None:
    assert "network: private" in (LocalFaultInjector().find_problem(plan_of("roles: {worker: 2}"), Fault.CUT) or "")
