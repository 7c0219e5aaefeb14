"""What a run is in a cluster: pure functions from launches to objects, as plain data.

Some objects are the run's, and made once (`shared_objects`): the owner, the claims, what is carried, secrets, the
network policy. Others are an attempt's (`attempt_objects`): what runs the pods and the names that they have.
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
    """Everything of a run and of this attempt, in the order in which it is made; secrets by name.

    A namespace is in it only if somebody named one: `kubectl create -n` refuses another.
    """
    made = [preparation(plan, each.id, parts=len(carried)) for each in plan.preparations]
    every = [*shared_objects(plan, carried), *made, *attempt_objects(plan, launches, len(carried))]
    namespace = cluster_of(plan).namespace
    if namespace is None:
        return every
    return [{**each, "metadata": {**each["metadata"], "namespace": namespace}} for each in every]


def render(every: Sequence[Object], form: str) -> str:
    """Write objects so that `kubectl create -f -` reads them."""
    if form == "json":
        return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(every)}, indent=2) + "\n"
    return "---\n".join(write_yaml(each) for each in every)


def shared_objects(
    plan: Plan, carried: Sequence[Mapping[str, bytes]] = (), secrets: Mapping[str, str] | None = None
) -> list[Object]:
    """What is made once for a run. The first is the owner of all others, and of attempts', but never of claims.

    `carried` is what each ConfigMap of the project holds, by key. `secrets` are values by the variables that they come
    from; without them, each is shown as a shell would ask for it.
    """
    found = [owner(plan), *volumes.claims(plan), *_carried(plan, carried), *_secret(plan, secrets)]
    return [*found, network.policy(plan)] if cluster_of(plan).network_policy else found


def attempt_objects(plan: Plan, launches: Sequence[Launch], parts: int = 0) -> list[Object]:
    """What runs these launches, with so many parts of the project, and the names by which they find each other.

    Where only one replica comes back, all but its Job is there already.
    """
    attempt = launches[0].attempt
    line = AttemptPods(plan, launches, parts)
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


def with_owner(each: Object, plan: Plan, uid: str) -> Object:
    """An object as the owner's, which has this uid: it goes with it. The owner itself and claims stay as they are."""
    if each["kind"] == "PersistentVolumeClaim" or (each["kind"], name_of(each)) == ("ConfigMap", names.base(plan)):
        return each
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": names.base(plan), "uid": uid}
    return {**each, "metadata": {**each["metadata"], "ownerReferences": [reference]}}


def owner(plan: Plan) -> Object:
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


def _carried(plan: Plan, contents: Sequence[Mapping[str, bytes]]) -> Iterator[Object]:
    for number, content in enumerate(contents):
        binary = {key: b64encode(value).decode() for key, value in content.items()}
        yield {**_config(plan, names.code(plan, number), {}), "binaryData": binary, "immutable": True}


def _secret(plan: Plan, values: Mapping[str, str] | None) -> Iterator[Object]:
    if wanted := names.secrets(plan):
        told = {name: shown if values is None else values[name] for name, shown in wanted.items()}
        yield new_object("Secret", names.metadata(plan, names.secret(plan)), stringData=told)


def _config(plan: Plan, name: str, data: Mapping[str, str]) -> Object:
    return new_object("ConfigMap", names.metadata(plan, name), **({"data": dict(data)} if data else {}))
