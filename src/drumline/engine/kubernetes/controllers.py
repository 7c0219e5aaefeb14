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

    def names_of(self, incarnation: Incarnation) -> tuple[str, ...]:
        """Return the names of the objects that create the pod of an incarnation.

        The first is the pod's controller; the second, with an operator, is the controller of the first.
        """
        group = self._group(incarnation)
        if group is None:
            return (names.job(self._plan, incarnation.replica, incarnation.attempt, incarnation.incarnation),)
        if self._plan.engine not in OPERATOR_KINDS:
            return (names.role_job(self._plan, group.name, incarnation.attempt),)
        made = names.service(self._plan, incarnation.attempt)
        return (f"{made}-{group.name}-0", made)

    def controller(self, incarnation: Incarnation) -> tuple[str, str]:
        """Return the kind and the name of the object that controls the pod of an incarnation."""
        if self._plan.engine == "tfjob" and not incarnation.replica.is_helper:
            return "TFJob", names.service(self._plan, incarnation.attempt)
        return "Job", self.names_of(incarnation)[0]

    def may_be_named(self, incarnation: Incarnation, pod: str) -> bool:
        """Return whether the controller of an incarnation could have given this name to its pod."""
        kind, controller = self.controller(incarnation)
        if kind == "TFJob":
            return pod == f"{controller}-{incarnation.replica.role}-{incarnation.replica.index}"
        group = self._group(incarnation)
        counted = "" if group is None else f"{incarnation.replica.index - group.first_index}-"
        return pod.startswith(f"{controller}-{counted}")

    def is_planned(self, incarnation: Incarnation) -> bool:
        """Return whether the plan has such a replica or helper."""
        return incarnation.replica in self._groups or incarnation.replica in self._plan.helpers

    def _group(self, incarnation: Incarnation) -> names.Group | None:
        """Return the replicas that share a controller with an incarnation; None if it has its own Job."""
        is_single = cluster_of(self._plan).jobs == "single" or incarnation.incarnation > 0
        if is_single and self._plan.engine not in OPERATOR_KINDS:
            return None
        return self._groups.get(incarnation.replica)
