"""The names of the objects that create the pod of an incarnation. Pure."""

from __future__ import annotations

from drumline.engine.kubernetes import names
from drumline.engine.kubernetes.plan_options import cluster_of
from drumline.plan.types import Plan
from drumline.run.incarnation import Incarnation

OPERATOR_KINDS = {"jobset": "JobSet", "tfjob": "TFJob"}  # kinds that an operator manages, by engine


class PodControllers:
    """The objects that create the pods of one plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._groups = {replica.id: group for group in names.groups(plan) for replica in group.replicas}

    def names_of(self, life: Incarnation) -> tuple[str, ...]:
        """Return the names of the objects that create the pod of an incarnation: its controller, then that one's."""
        group = self._group(life)
        if group is None:
            return (names.job(self._plan, life.replica, life.attempt, life.incarnation),)
        if self._plan.engine not in OPERATOR_KINDS:
            return (names.role_job(self._plan, group.name, life.attempt),)
        made = names.service(self._plan, life.attempt)
        return (f"{made}-{group.name}-0", made)

    def controller(self, life: Incarnation) -> tuple[str, str]:
        """Return the kind and the name of the object that controls the pod of an incarnation."""
        if self._plan.engine == "tfjob" and not life.replica.is_helper:
            return "TFJob", names.service(self._plan, life.attempt)
        return "Job", self.names_of(life)[0]

    def may_be_named(self, life: Incarnation, pod: str) -> bool:
        """Return whether the controller of an incarnation could have given this name to its pod."""
        kind, controller = self.controller(life)
        if kind == "TFJob":
            return pod == f"{controller}-{life.replica.role}-{life.replica.index}"
        group = self._group(life)
        counted = "" if group is None else f"{life.replica.index - group.first_index}-"
        return pod.startswith(f"{controller}-{counted}")

    def is_planned(self, life: Incarnation) -> bool:
        """Return whether the plan has such a replica or helper."""
        return life.replica in self._groups or life.replica in self._plan.helpers

    def _group(self, life: Incarnation) -> names.Group | None:
        """Return the replicas that share a controller with an incarnation; None if it has its own Job."""
        is_single = cluster_of(self._plan).jobs == "single" or life.incarnation > 0
        if is_single and self._plan.engine not in OPERATOR_KINDS:
            return None
        return self._groups.get(life.replica)
