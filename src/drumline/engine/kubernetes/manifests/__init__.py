"""The objects of a run in a cluster as plain data. Pure.

`shared_objects` are made once for a run: the owner, claims, the project, secrets and the network policy.
`attempt_objects` are made for each attempt: the Jobs, JobSet or TFJob, and the Service.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence

from drumline.engine.kubernetes import names
from drumline.engine.kubernetes.manifests import network, volumes
from drumline.engine.kubernetes.manifests.attempt import AttemptPods
from drumline.engine.kubernetes.manifests.jobs import jobs
from drumline.engine.kubernetes.manifests.jobset import jobset
from drumline.engine.kubernetes.manifests.prepare import preparation
from drumline.engine.kubernetes.manifests.tfjob import tfjob
from drumline.engine.kubernetes.paths import Object, name_of, new_object
from drumline.engine.kubernetes.plan_options import cluster_of
from drumline.plan.types import Launch, Plan
from drumline.spec.write import write_yaml


def objects(plan: Plan, launches: Sequence[Launch], carried: Sequence[Mapping[str, bytes]] = ()) -> list[Object]:
    """Return all objects of a run and an attempt in the order of their creation, with the names of secrets as values.

    They have a namespace only if the plan names one: `kubectl create -n` refuses a different one.
    """
    made = [preparation(plan, each.id, parts=len(carried)) for each in plan.preparations]
    every = [*shared_objects(plan, carried), *made, *attempt_objects(plan, launches, len(carried))]
    namespace = cluster_of(plan).namespace
    if namespace is None:
        return every
    return [{**each, "metadata": {**each["metadata"], "namespace": namespace}} for each in every]


def render(every: Sequence[Object], form: str) -> str:
    """Return objects as text that `kubectl create -f -` reads."""
    if form == "json":
        return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(every)}, indent=2) + "\n"
    return "---\n".join(write_yaml(each) for each in every)


def shared_objects(
    plan: Plan, carried: Sequence[Mapping[str, bytes]] = (), secrets: Mapping[str, str] | None = None
) -> list[Object]:
    """Return the objects that are made once for a run; the first owns all others except claims.

    `carried` has the content of each of the project's ConfigMaps, by key. `secrets` are the values by variable; without
    them, the objects have placeholders.
    """
    found = [owner(plan), *volumes.claims(plan), *_carried(plan, carried), *_secret(plan, secrets)]
    return [*found, network.policy(plan)] if cluster_of(plan).network_policy else found


def attempt_objects(plan: Plan, launches: Sequence[Launch], parts: int = 0) -> list[Object]:
    """Return the objects that run these launches; `parts` is the number of the project's ConfigMaps."""
    attempt = launches[0].attempt
    pods = AttemptPods(plan, launches, parts)
    match plan.engine:
        case "jobset":
            running = [jobset(plan, pods, launches)]
        case "tfjob":
            running = [tfjob(plan, pods, launches)]
        case _:
            running = [network.service(plan, {launch.place.port for launch in launches}, attempt)]
            running += jobs(plan, pods, launches)
    shared = [_config(plan, names.shared_values(plan, attempt), pods.shared)] if pods.shared else []
    return [*shared, *running]


def with_owner(each: Object, plan: Plan, uid: str) -> Object:
    """Return an object with a reference to the owner, so that it is deleted with it; claims have none."""
    if each["kind"] == "PersistentVolumeClaim" or (each["kind"], name_of(each)) == ("ConfigMap", names.base(plan)):
        return each
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": names.base(plan), "uid": uid}
    return {**each, "metadata": {**each["metadata"], "ownerReferences": [reference]}}


def owner(plan: Plan) -> Object:
    """Return the ConfigMap that owns the run's objects: deleting it deletes everything but the claims."""
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


def _carried(plan: Plan, contents: Sequence[Mapping[str, bytes]]) -> Iterator[Object]:
    for number, content in enumerate(contents):
        binary = {key: b64encode(value).decode() for key, value in content.items()}
        yield {**_config(plan, names.code(plan, number), {}), "binaryData": binary, "immutable": True}


def _secret(plan: Plan, values: Mapping[str, str] | None) -> Iterator[Object]:
    if wanted := names.secrets(plan):
        data = {name: shown if values is None else values[name] for name, shown in wanted.items()}
        yield new_object("Secret", names.metadata(plan, names.secret(plan)), stringData=data)


def _config(plan: Plan, name: str, data: Mapping[str, str]) -> Object:
    return new_object("ConfigMap", names.metadata(plan, name), **({"data": dict(data)} if data else {}))
