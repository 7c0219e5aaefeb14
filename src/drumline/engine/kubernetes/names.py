"""Names and labels of a run's objects: derived from its name, its number and a few random letters. Pure.

Every name is a DNS label of at most 63 characters, with role, index, attempt and incarnation. The random letters make
names of two runs distinct.
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
# The longest suffix is that of a JobSet's pod: `-r9999-worker-1st-0-99999-xxxxx`.
MOST_BASE = LIMIT - 31
_MOST_NUMBER = 16
_MOST_HELPER = 17  # as long as `-worker-99999`, with an attempt, which helpers do not have

PREFIX = "drumline.dev"
RUN, NUMBER, PROJECT, USER = (f"{PREFIX}/{key}" for key in ("run", "number", "project", "user"))
ROLE, INDEX, ATTEMPT, INCARNATION = (f"{PREFIX}/{key}" for key in ("role", "index", "attempt", "incarnation"))
# The index of the first pod of a shared template; the cluster numbers its pods from 0.
FIRST_INDEX = f"{PREFIX}/from"
MANAGED = "app.kubernetes.io/managed-by"
# Labels and annotations with numbers that the cluster writes.
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
RESTART_ATTEMPT = "jobset.sigs.k8s.io/restart-attempt"
JOBSET_NAME = "jobset.sigs.k8s.io/jobset-name"
TFJOB_INDEX = "training.kubeflow.org/replica-index"


def base(plan: Plan) -> str:
    """Return the prefix of all names of a run, such as `digits-4-x7k2q`; also the name of the owner."""
    number = "" if plan.run == "0" else f"-{plan.run.replace('.', '--')}"
    unique = f"-{cluster_of(plan).unique}" if cluster_of(plan).unique else ""
    if len(number) > _MOST_NUMBER:  # of a very large sweep
        return _label(plan.name + number, MOST_BASE, end=unique)
    return _label(plan.name, MOST_BASE, end=number + unique)


def service(plan: Plan, attempt: int = 0) -> str:
    """Return the name of an attempt's Service, which is the domain of its pods, or of its TFJob or JobSet.

    A JobSet has the same name in all attempts, since it restarts its pods under the same names.
    """
    return base(plan) + _attempt_suffix(0 if plan.engine == "jobset" else attempt)


def shared_values(plan: Plan, attempt: int) -> str:
    """Return the name of the ConfigMap with the long values that the replicas of an attempt share."""
    return f"{base(plan)}-line{_attempt_suffix(attempt)}"


def job(plan: Plan, replica: ReplicaId, attempt: int = 0, incarnation: int = 0) -> str:
    """Return the name of the Job of a replica or helper."""
    own = helper(replica.role) if replica.is_helper else f"{replica.role}-{replica.index}"
    return f"{base(plan)}-{own}{_attempt_suffix(attempt)}{f'-i{incarnation}' if incarnation else ''}"


def role_job(plan: Plan, group: str, attempt: int) -> str:
    """Return the name of the indexed Job of a group of replicas."""
    return f"{base(plan)}-{group}{_attempt_suffix(attempt)}"


def code(plan: Plan, part: int) -> str:
    """Return the name of the ConfigMap with this part of the project."""
    return f"{base(plan)}-code-{part}"


def secret(plan: Plan) -> str:
    """Return the name of the Secret of the run."""
    return f"{base(plan)}-secrets"


def secrets(plan: Plan) -> dict[str, str]:
    """Return the variables of the run's secrets, each with the text that is shown instead of its value."""
    envs = [*(each.env for each in plan.replicas), *(each.env for each in plan.preparations)]
    return {value.variable: str(value) for env in envs for value in env.values() if isinstance(value, Secret)}


def output_claim(plan: Plan) -> str | None:
    """Return the name of the output's claim: the spec's, or one made for the run; None if there is no volume."""
    volume = cluster_of(plan).output
    return volume and (volume.claim or f"{base(plan)}-output")


def data_claim(plan: Plan, variable: str) -> str:
    """Return the name of the claim of this data: the spec's, or one made for the run."""
    own = variable.lower().replace("_", "-").replace("data-dir", "data", 1)
    return cluster_of(plan).data[variable].claim or f"{base(plan)}-{_label(own, _MOST_HELPER)}"


def claims(plan: Plan) -> dict[str, Volume]:
    """Return every claim of the run with its volume, that of the output first."""
    asked, output = cluster_of(plan), output_claim(plan)
    found = {output: asked.output} if output and asked.output else {}
    return {**found, **{data_claim(plan, variable): volume for variable, volume in asked.data.items()}}


def created_claims(plan: Plan) -> tuple[str, ...]:
    """Return the claims that are made for the run, which stay when it is removed."""
    return tuple(name for name, volume in claims(plan).items() if not volume.claim)


def helper(name: str) -> str:
    """Return a helper's name for use in other names and labels."""
    return _label(name, _MOST_HELPER)


class Group(Record):
    """Replicas of a role that share a template; `name` is the role, or `worker-1st` for a first one that differs."""

    name: str
    replicas: tuple[Replica, ...]

    @property
    def first_index(self) -> int:
        """The index of the first replica."""
        return self.replicas[0].id.index


def groups(plan: Plan) -> Iterator[Group]:
    """Yield all replicas by role; a replica 0 that differs from the others is a group of its own.

    It may differ by its spec, by deciding the end of the run alone, or by having the output volume alone.
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
            yield Group(role, tuple(others))  # in a spec only the first can differ


def labels(plan: Plan) -> dict[str, str]:
    """Return the labels of all objects of a run."""
    asked = cluster_of(plan)
    values = {RUN: base(plan), NUMBER: plan.run, PROJECT: plan.project, USER: asked.user}
    own = {key: _value(value) for key, value in values.items() if value}
    return {**asked.labels, MANAGED: "drumline", **own}


def metadata(plan: Plan, name: str) -> dict[str, Any]:
    """Return the metadata of an object of a run."""
    return {"name": name, "labels": labels(plan)}


def labels_of(plan: Plan, replica: ReplicaId, attempt: int, incarnation: int) -> dict[str, str]:
    """Return the labels of the objects of one incarnation."""
    role = helper(replica.role) if replica.is_helper else replica.role
    own = {ROLE: role, INDEX: str(replica.index), ATTEMPT: str(attempt), INCARNATION: str(incarnation)}
    return {**labels(plan), **own}


def labels_of_group(plan: Plan, group: Group, attempt: int) -> dict[str, str]:
    """Return the labels of a template that replicas share; the cluster adds the index."""
    return {**labels(plan), ROLE: group.replicas[0].id.role, FIRST_INDEX: str(group.first_index), ATTEMPT: str(attempt)}


def incarnation_of(plan: Plan, metadata: Mapping[str, Any]) -> Incarnation | None:
    """Return the incarnation that the labels of a pod name; None if they are not of this run or invalid.

    Every user of the namespace can write labels: `Ownership` decides whether a pod is the run's. A JobSet counts its
    restarts from the attempt for which it was made.
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
    """Return the label selector of a run's objects."""
    return f"{RUN}={base(plan)}"


def _attempt_suffix(attempt: int) -> str:
    return f"-r{attempt}" if attempt else ""


def _kind(replica: Replica) -> tuple[object, ...]:
    return replica.argv, replica.env, replica.resources


def _label(text: str, limit: int, end: str = "") -> str:
    """Return a DNS label for any text: the text itself, or its beginning and a digest if it was changed or cut."""
    label = re.sub(r"[^a-z0-9-]", "-", text.lower()).strip("-")
    if not label or not label[0].isalpha():
        label = f"r{label}"  # a Service's name must begin with a letter
    if label == text and len(label) + len(end) <= limit:
        return label + end
    digest = _in_letters(crc32(text.encode()))
    head = label[: max(0, limit - len(end) - len(digest) - 1)].rstrip("-")
    return f"{head}-{digest}{end}" if head else f"r{digest}{end}"


def _in_letters(number: int) -> str:
    """Return a number of 32 bits as seven letters and digits."""
    text = ""
    for _ in range(7):
        number, digit = divmod(number, 36)
        text += "0123456789abcdefghijklmnopqrstuvwxyz"[digit]
    return text


def _value(text: str) -> str:
    """Return a label's value for any text."""
    value = re.sub(r"[^A-Za-z0-9_.-]", "-", text)[:LIMIT].strip("-_.")
    return value or "unknown"
