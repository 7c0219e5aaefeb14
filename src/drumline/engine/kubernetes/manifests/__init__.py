"""What a run is in a cluster: pure functions from launches to objects, as plain data.

Some objects are the run's, and made once (`shared_objects`): the owner, the claims, what is carried, secrets, the
network policy. Others are an attempt's (`attempt_objects`): what runs the pods and the names that they have.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from drumline.engine.kubernetes import names
from drumline.engine.kubernetes.manifests import network, prepare, volumes
from drumline.engine.kubernetes.manifests.jobs import jobs
from drumline.engine.kubernetes.manifests.jobset import jobset
from drumline.engine.kubernetes.manifests.line import Line
from drumline.engine.kubernetes.manifests.tfjob import tfjob
from drumline.engine.kubernetes.planned import cluster_of
from drumline.plan.types import Launch, Plan, ReplicaId

Json = dict[str, Any]


class Code(Protocol):
    """What is carried into the pods."""

    @property
    def contents(self) -> Sequence[Mapping[str, bytes]]:
        """What each ConfigMap holds, by key; all of them together are one folder in the pod."""
        ...


def objects(plan: Plan, launches: Sequence[Launch], code: Code | None = None) -> list[Json]:
    """Everything of a run and of this attempt, in the order in which it is made; secrets by name.

    A namespace is in it only if somebody named one: `kubectl create -n` refuses another.
    """
    made = [preparation(plan, each.id, code) for each in plan.preparations]
    every = [*shared_objects(plan, code), *made, *attempt_objects(plan, launches, code)]
    namespace = cluster_of(plan).namespace
    if namespace is None:
        return every
    return [{**each, "metadata": {**each["metadata"], "namespace": namespace}} for each in every]


def shared_objects(plan: Plan, code: Code | None = None, secrets: Mapping[str, str] | None = None) -> list[Json]:
    """What is made once for a run. The first is the owner of all others, and of attempts', but never of claims.

    `secrets` are values by the variables that they come from; without them, each is shown as a shell would ask for it.
    """
    found = [owner(plan), *volumes.claims(plan), *_carried(plan, code), *_secret(plan, secrets)]
    return [*found, network.policy(plan)] if cluster_of(plan).network_policy else found


def attempt_objects(plan: Plan, launches: Sequence[Launch], code: Code | None = None) -> list[Json]:
    """What runs these launches, and the names by which they find each other.

    Where only one replica comes back, all but its Job is there already.
    """
    attempt = launches[0].attempt
    line = Line(plan, launches, _parts(code))
    match plan.engine:
        case "jobset":
            running = [jobset(plan, line, launches)]
        case "tfjob":
            running = [tfjob(plan, line, launches)]
        case _:
            running = [network.service(plan, {launch.place.port for launch in launches}, attempt)]
            running += jobs(plan, line, launches)
    shared = [_config(plan, names.shared_values(plan, attempt), line.shared)] if line.shared else []
    return [*shared, *running]


def preparation(plan: Plan, helper: ReplicaId, code: Code | None = None, *, incarnation: int = 0) -> Json:
    """The Job that makes data before the line starts."""
    return prepare.preparation(plan, helper, parts=_parts(code), incarnation=incarnation)


def owned(each: Json, plan: Plan, uid: str) -> Json:
    """An object as the owner's, which has this uid: it goes with it. The owner itself and claims stay as they are."""
    if each["kind"] == "PersistentVolumeClaim" or _is_owner(each, plan):
        return each
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": names.base(plan), "uid": uid}
    return {**each, "metadata": {**each["metadata"], "ownerReferences": [reference]}}


def owner(plan: Plan) -> Json:
    """The run's own object: whoever deletes it deletes everything but the claims."""
    roles = dict.fromkeys(replica.id.role for replica in plan.replicas)
    summary = {
        "run": plan.run,
        "project": plan.project,
        "name": plan.name,
        "framework": plan.framework,
        "engine": plan.engine,
        "replicas": ", ".join(f"{len(plan.replicas_of(role))} {role}" for role in roles),
    }
    return _config(plan, names.base(plan), summary)


def _is_owner(each: Json, plan: Plan) -> bool:
    return bool(each["kind"] == "ConfigMap" and each["metadata"]["name"] == names.base(plan))


def _parts(code: Code | None) -> int:
    return len(code.contents) if code else 0


def _carried(plan: Plan, code: Code | None) -> Iterator[Json]:
    for number, content in enumerate(code.contents if code else ()):
        binary = {key: b64encode(value).decode() for key, value in content.items()}
        yield {**_config(plan, names.code(plan, number), {}), "binaryData": binary, "immutable": True}


def _secret(plan: Plan, values: Mapping[str, str] | None) -> Iterator[Json]:
    if wanted := names.secrets(plan):
        yield {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": names.secret(plan), "labels": names.labels(plan)},
            "stringData": {name: shown if values is None else values[name] for name, shown in wanted.items()},
        }


def _config(plan: Plan, name: str, data: Mapping[str, str]) -> Json:
    metadata = {"name": name, "labels": names.labels(plan)}
    content = {"data": dict(data)} if data else {}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **content}
