"""Names for things outside drumline: valid DNS labels of at most 63 characters, unique, readable."""

from __future__ import annotations

import re
from zlib import crc32

from drumline.plan.types import Plan

LIMIT = 63


def replica_name(name: str, run: str, role: str, index: int) -> str:
    """Return `digits-4-worker-0`; a name that is too long keeps its end and gets a digest of what was cut."""
    # Two dashes for the dot of a sweep: run 2 of `a-7` is not run 7.2 of `a`.
    end = f"-{run.replace('.', '--')}-{role}-{index}"
    label = re.sub(r"[^a-z0-9-]", "-", name.lower()).strip("-")
    if not label or not label[0].isalpha():
        label = f"r{label}"  # a Service's name must begin with a letter
    if label == name and len(label) + len(end) <= LIMIT:
        return label + end
    digest = f"{crc32(name.encode()):08x}"
    return f"{label[: LIMIT - len(end) - len(digest) - 1].rstrip('-')}-{digest}{end}"


def renumbered(plan: Plan, run: str) -> Plan:
    """The plan of another run that differs in its number alone, and in the names that are made of it."""
    replicas = (each._replace(name=replica_name(plan.name, run, each.id.role, each.id.index)) for each in plan.replicas)
    return plan._replace(run=run, replicas=tuple(replicas))
