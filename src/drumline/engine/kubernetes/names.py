"""Names and labels of a run in a cluster: derived from its name, its number and a few random letters. Pure.

Every name is a DNS label of at most 63 characters, with the role, the index, the attempt and the incarnation in it,
whatever the run's own name is. Two runs never share one, since each has letters of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from zlib import crc32

from drumline.engine.kubernetes.answer_fields import label_number, mapping
from drumline.engine.kubernetes.plan_options import Volume, cluster_of
from drumline.plan.types import Plan, Replica, ReplicaId, Secret
from drumline.record import Record
from drumline.run.incarnation import Incarnation

LIMIT = 63
# The longest that is put behind a base is a JobSet's `-r9999-worker-1st-0-99999-xxxxx`.
MOST_BASE = LIMIT - 31
_MOST_NUMBER = 16
_MOST_HELPER = 17  # `-worker-99999` has as many as that with its dashes, and no helper has an attempt

PREFIX = "drumline.dev"
RUN, NUMBER, PROJECT, USER = (f"{PREFIX}/{key}" for key in ("run", "number", "project", "user"))
ROLE, INDEX, ATTEMPT, INCARNATION = (f"{PREFIX}/{key}" for key in ("role", "index", "attempt", "incarnation"))
# The index of the first pod of a template that many replicas share; the cluster counts its pods from 0.
FIRST_INDEX = f"{PREFIX}/from"
MANAGED = "app.kubernetes.io/managed-by"
# Where clusters write the numbers that they count themselves.
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
RESTART_ATTEMPT = "jobset.sigs.k8s.io/restart-attempt"
JOBSET_NAME = "jobset.sigs.k8s.io/jobset-name"
TFJOB_INDEX = "training.kubeflow.org/replica-index"


def base(plan: Plan) -> str:
    """What all names of a run begin with: `digits-4-x7k2q`; also the name of the object that owns the others."""
    number = "" if plan.run == "0" else f"-{plan.run.replace('.', '--')}"
    unique = f"-{cluster_of(plan).unique}" if cluster_of(plan).unique else ""
    if len(number) > _MOST_NUMBER:  # of a sweep as nobody has one
        return _label(plan.name + number, MOST_BASE, end=unique)
    return _label(plan.name, MOST_BASE, end=number + unique)


def service(plan: Plan, attempt: int = 0) -> str:
    """The Service of an attempt, which is also the domain of its pods; or its TFJob; or the JobSet of all attempts.

    A JobSet starts its line again under the names that it had: one that another takes the place of leaves it its name.
    """
    return base(plan) + _attempt_suffix(0 if plan.engine == "jobset" else attempt)


def shared_values(plan: Plan, attempt: int) -> str:
    """The ConfigMap with what is the same for every replica of an attempt, and long."""
    return f"{base(plan)}-line{_attempt_suffix(attempt)}"


def job(plan: Plan, replica: ReplicaId, attempt: int = 0, incarnation: int = 0) -> str:
    """The Job of one replica, or of one helper."""
    own = helper(replica.role) if replica.is_helper else f"{replica.role}-{replica.index}"
    return f"{base(plan)}-{own}{_attempt_suffix(attempt)}{f'-i{incarnation}' if incarnation else ''}"


def role_job(plan: Plan, group: str, attempt: int) -> str:
    """The Job of all replicas of a role, or of those of them that are alike."""
    return f"{base(plan)}-{group}{_attempt_suffix(attempt)}"


def code(plan: Plan, part: int) -> str:
    """The ConfigMap with this part of the project's folder."""
    return f"{base(plan)}-code-{part}"


def secret(plan: Plan) -> str:
    """The Secret with the run's secrets."""
    return f"{base(plan)}-secrets"


def secrets(plan: Plan) -> dict[str, str]:
    """The variables that the run's secrets are taken from, each with what is shown instead of its value."""
    envs = (each.env for everyone in (plan.replicas, plan.preparations) for each in everyone)
    return {value.variable: str(value) for env in envs for value in env.values() if isinstance(value, Secret)}


def output_claim(plan: Plan) -> str | None:
    """The claim of the run's output: the one that the spec names, or one of the run's own; None if there is none."""
    volume = cluster_of(plan).output
    return volume and (volume.claim or f"{base(plan)}-output")


def data_claim(plan: Plan, variable: str) -> str:
    """The claim of this data, as above."""
    own = variable.lower().replace("_", "-").replace("data-dir", "data", 1)
    return cluster_of(plan).data[variable].claim or f"{base(plan)}-{_label(own, _MOST_HELPER)}"


def claims(plan: Plan) -> dict[str, Volume]:
    """Every claim of the run with its volume, that of the output first."""
    asked, output = cluster_of(plan), output_claim(plan)
    found = {output: asked.output} if output and asked.output else {}
    return {**found, **{data_claim(plan, variable): volume for variable, volume in asked.data.items()}}


def created_claims(plan: Plan) -> tuple[str, ...]:
    """The claims that are made for the run, and stay when it is removed."""
    return tuple(name for name, volume in claims(plan).items() if not volume.claim)


def helper(name: str) -> str:
    """A helper's name as part of another, and as a label."""
    return _label(name, _MOST_HELPER)


class Group(Record):
    """Replicas of a role that one template can stand for; `name` is the role's, unless its first one differs."""

    name: str
    replicas: tuple[Replica, ...]

    @property
    def first_index(self) -> int:
        """The index of the first of them."""
        return self.replicas[0].id.index


def groups(plan: Plan) -> Iterator[Group]:
    """Everybody of the line, by role; a replica 0 that differs from its peers is a group of its own.

    It may differ by its spec, by deciding alone, and by being the only one that has the output volume.
    """
    output = cluster_of(plan).output
    alone = {plan.chief} if output and not output.is_shared else set()
    if plan.success == "worker-0":
        alone.add(ReplicaId("worker", 0))
    for role in dict.fromkeys(replica.id.role for replica in plan.replicas):
        several = plan.replicas_of(role)
        first, *others = several
        if not others or (first.id not in alone and _kind(first) == _kind(others[0])):
            yield Group(role, several)
        else:
            yield Group(f"{role[:6]}-1st", (first,))
            yield Group(role, tuple(others))  # a spec can only say what differs for the first


def labels(plan: Plan) -> dict[str, str]:
    """The labels of everything that belongs to a run."""
    asked = cluster_of(plan)
    values = {RUN: base(plan), NUMBER: plan.run, PROJECT: plan.project, USER: asked.user}
    own = {key: _value(value) for key, value in values.items() if value}
    return {**asked.labels, MANAGED: "drumline", **own}


def metadata(plan: Plan, name: str) -> dict[str, Any]:
    """The metadata of an object that belongs to a run as a whole."""
    return {"name": name, "labels": labels(plan)}


def labels_of(plan: Plan, replica: ReplicaId, attempt: int, incarnation: int) -> dict[str, str]:
    """The labels of what belongs to one life of one replica."""
    role = helper(replica.role) if replica.is_helper else replica.role
    own = {ROLE: role, INDEX: str(replica.index), ATTEMPT: str(attempt), INCARNATION: str(incarnation)}
    return {**labels(plan), **own}


def labels_of_group(plan: Plan, group: Group, attempt: int) -> dict[str, str]:
    """The labels of a template that several replicas share; what it counts, the cluster writes beside them."""
    return {**labels(plan), ROLE: group.replicas[0].id.role, FIRST_INDEX: str(group.first_index), ATTEMPT: str(attempt)}


def incarnation_of(plan: Plan, metadata: Mapping[str, Any]) -> Incarnation | None:
    """Whose a pod says it is, by its labels; None if it is not of this run, or its labels make no sense.

    Every user of the namespace can write labels: whether a pod is the run's, `Ownership` says. A JobSet counts its own
    restarts from the attempt in which it was made.
    """
    known = mapping(metadata.get("labels"))
    counted = known.get(TFJOB_INDEX, "0")
    counted = {**known, **mapping(metadata.get("annotations"))}.get(COMPLETION_INDEX, counted)
    role = known.get(ROLE)
    if not isinstance(role, str) or known.get(RUN) != base(plan):
        return None
    name = next((each.role for each in plan.helpers if helper(each.role) == role), role)
    parts = (
        [label_number(known.get(FIRST_INDEX)), label_number(counted)]
        if known.get(INDEX) is None
        else [label_number(known.get(INDEX))]
    )
    attempts = [label_number(known.get(ATTEMPT)), label_number(known.get(RESTART_ATTEMPT))]
    incarnation = label_number(known.get(INCARNATION))
    if None in (*parts, *attempts, incarnation):
        return None
    index, attempt = (sum(each or 0 for each in several) for several in (parts, attempts))
    return Incarnation(ReplicaId(name, index), attempt, incarnation or 0)


def selector(plan: Plan) -> str:
    """What finds everything of a run."""
    return f"{RUN}={base(plan)}"


def _attempt_suffix(attempt: int) -> str:
    return f"-r{attempt}" if attempt else ""


def _kind(replica: Replica) -> tuple[object, ...]:
    return replica.argv, replica.env, replica.resources


def _label(text: str, limit: int, end: str = "") -> str:
    """A DNS label out of any text: itself, or its beginning and a digest of what was changed or cut."""
    label = re.sub(r"[^a-z0-9-]", "-", text.lower()).strip("-")
    if not label or not label[0].isalpha():
        label = f"r{label}"  # a Service's name must begin with a letter
    if label == text and len(label) + len(end) <= limit:
        return label + end
    digest = _in_letters(crc32(text.encode()))
    head = label[: max(0, limit - len(end) - len(digest) - 1)].rstrip("-")
    return f"{head}-{digest}{end}" if head else f"r{digest}{end}"


def _in_letters(number: int) -> str:
    """Seven letters and digits for any 32 bits."""
    text = ""
    for _ in range(7):
        number, digit = divmod(number, 36)
        text += "0123456789abcdefghijklmnopqrstuvwxyz"[digit]
    return text


def _value(text: str) -> str:
    """A label's value out of any text."""
    value = re.sub(r"[^A-Za-z0-9_.-]", "-", text)[:LIMIT].strip("-_.")
    return value or "unknown"
