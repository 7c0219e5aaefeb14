"""The local engine's part of a plan. Hosts read it, too: standard library only."""

from __future__ import annotations

from drumline.plan.codec import read_options, to_options
from drumline.plan.types import Plan
from drumline.record import Record


class LocalPlan(Record):
    """How replicas run on this machine."""

    private_network: bool = False


def local_plan(plan: Plan) -> LocalPlan:
    """Return the local engine's part of a plan."""
    return read_options(LocalPlan, plan.options)


def for_local(plan: Plan) -> Plan:
    """Return the plan of another engine for the local engine of a host."""
    return plan.replace(options=to_options(LocalPlan()), is_elsewhere=False, fetches_output=False)
