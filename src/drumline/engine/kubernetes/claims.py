"""Describe the claims of a run, without contacting the cluster."""

from __future__ import annotations

from collections.abc import Iterator

from drumline.engine.kubernetes.names import created_claims, output_claim
from drumline.engine.kubernetes.place import place_helper
from drumline.engine.kubernetes.plan_options import cluster_of
from drumline.plan.types import Plan


def describe_output(plan: Plan) -> str:
    """Return a text about where the output is and how to keep or fetch it."""
    claim, folder = output_claim(plan), place_helper(plan).output_dir
    if claim is None:
        return f"{folder} in the pods, deleted with them: `engine.{plan.engine}.output` keeps it"
    return f"{folder} on the claim {claim}: `drumline cp {plan.run}: .` fetches it"


def describe_kept_claims(plan: Plan) -> Iterator[str]:
    """Yield a sentence about each claim that was made for the run."""
    where = cluster_of(plan).namespace
    for name in created_claims(plan):
        yield f"its claim {name} stays{f' in {where}' if where else ''}: `kubectl delete pvc {name}` deletes it"
