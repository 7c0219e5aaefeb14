"""Make the objects of a run from a few lines of a spec, for tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from drumline.engine.kubernetes.manifests import objects
from drumline.engine.kubernetes.place import place
from drumline.load.engine import plan_spec
from drumline.plan.bind import bind
from drumline.plan.types import Plan
from scaffold.plans import spec_of

Json = dict[str, Any]


class Carried(NamedTuple):
    """Files that are carried into pods: a script, and the archive of a project."""

    contents: tuple[Mapping[str, bytes], ...] = ({"ready.sh": b"exit 0\n"}, {"project-000": b"\x1f\x8b"})


def plan_of(text: str, engine: str = "kubernetes", *, options: str = "") -> Plan:
    """Return a plan for a cluster; `options` are the keys of the engine's block."""
    lines = ["project: digits", "run: python train.py"]
    keys = {line.partition(":")[0] for line in text.splitlines()}
    whole = [line for line in lines if line.partition(":")[0] not in keys]
    cluster = f"engine: {{kubernetes: {{image: python{', ' if options else ''}{options}}}}}"
    return plan_spec(spec_of("\n".join([*whole, text, cluster])), run="4", on=engine)


def objects_of(plan: Plan, attempt: int = 0) -> list[Json]:
    """Return all objects of a run in this attempt."""
    return objects(plan, bind(plan, place(plan, attempt=attempt), attempt=attempt), Carried().contents)


def rendered(text: str, engine: str = "kubernetes", *, options: str = "") -> dict[str, Json]:
    """Return the objects of a spec by `kind/name`."""
    return {
        f"{each['kind']}/{each['metadata']['name']}": each
        for each in objects_of(plan_of(text, engine, options=options))
    }


def templates(each: Json) -> Iterator[Json]:
    """Return the templates of pods in an object."""
    match each["kind"]:
        case "Job":
            yield each["spec"]["template"]
        case "JobSet":
            yield from (job["template"]["spec"]["template"] for job in each["spec"]["replicatedJobs"])
        case "TFJob":
            yield from (replicas["template"] for replicas in each["spec"]["tfReplicaSpecs"].values())


def container(template: Json) -> Json:
    """Return the container of the replica."""
    (found,) = template["spec"]["containers"]
    assert isinstance(found, dict)
    return found


def env(template: Json) -> dict[str, Any]:
    """Return the variables of the container of the replica."""
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container(template)["env"]}
