"""Ids of runs and replicas as users type them: `4`, `4.worker.1`, `4.chief`; in a sweep `7.2`, `7.2.ps.0`."""

from __future__ import annotations

import re

from drumline.errors import InputError, NotFoundError
from drumline.plan.types import ROLES, TENSORBOARD, Plan, ReplicaId, is_helper_name
from drumline.record import Record

_ID = re.compile(
    r"(?P<run>[0-9]{1,9}(?:\.[0-9]{1,9})?)(?:\.(?P<role>[a-z]+|prepare-[\w-]+)(?:\.(?P<index>[0-9]{1,9}))?)?"
)


class Target(Record):
    """A run; or, with a role, its replicas of that role; or, with a number as well, one replica."""

    run: str
    role: str | None = None
    number: int | None = None

    def replicas(self, plan: Plan) -> tuple[ReplicaId, ...]:
        """Return the replicas that this id means; raise NotFoundError, which lists the existing ids, if none exists."""
        known_ids = plan.all_ids
        if self.role is None:
            return known_ids
        if self.role == "chief" and plan.chief and self.number in (None, 0):
            return (plan.chief,)  # also if its role is worker
        if self.role == TENSORBOARD.role and plan.tensorboard is not False and self.number is None:
            return (TENSORBOARD,)
        meant = tuple(each for each in known_ids if each.role == self.role and self.number in (None, each.index))
        if not meant:
            known = ", ".join(f"{self.run}.{each}" for each in known_ids[:12])
            more = ", …" if len(known_ids) > 12 else ""
            raise NotFoundError(f"run {self.run} has no {self._part()}", hint=f"it has {known}{more}")
        return meant

    def _part(self) -> str:
        return self.role or "" if self.number is None else f"{self.role}.{self.number}"


def parse_target(text: str) -> Target:
    """Return the target of an id; raise InputError if the text is not an id."""
    match = _ID.fullmatch(text)
    if not match:
        raise InputError(f"`{text}` is not a run's id", hint="ids look like 4, 4.worker.1 or 4.chief")
    role = "chief" if match["role"] == "master" else match["role"]
    if role is not None and role not in ROLES and not is_helper_name(role):
        raise InputError(f"`{text}`: `{role}` is not a role", hint=f"roles are {', '.join(ROLES)}")
    return Target(match["run"], role, int(match["index"]) if match["index"] else None)
