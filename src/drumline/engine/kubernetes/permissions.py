"""Check that the cluster answers and that the user has the permissions that a run needs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping

from drumline.engine.kubernetes import names
from drumline.engine.kubernetes.api import Api, open_api
from drumline.engine.kubernetes.api_errors import RefusedError
from drumline.engine.kubernetes.paths import new_object
from drumline.engine.kubernetes.plan_options import cluster_of, with_cluster
from drumline.plan.types import Plan
from drumline.record import Record, to_dict
from drumline.words import listed


class Permission(Record):
    """A verb on a resource."""

    verb: str
    resource: str
    group: str = ""
    subresource: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}{f'/{self.subresource}' if self.subresource else ''}"


PERMISSIONS = (
    *(Permission(verb, "configmaps") for verb in ("get", "list", "create", "patch", "delete")),
    *(Permission(verb, "services") for verb in ("list", "create")),
    *(Permission(verb, "pods") for verb in ("list", "watch", "delete")),
    Permission("get", "pods", subresource="log"),
)
_JOBS = tuple(Permission(verb, "jobs", "batch") for verb in ("list", "create", "delete"))
_OF_KINDS = {
    "kubernetes": _JOBS,
    "jobset": (
        *(Permission(verb, "jobsets", "jobset.x-k8s.io") for verb in ("get", "list", "create", "delete")),
        Permission("list", "jobs", "batch"),  # to see that those of the last attempt are gone
    ),
    "tfjob": tuple(Permission(verb, "tfjobs", "kubeflow.org") for verb in ("get", "list", "create", "delete")),
}


def permissions_of(engine: str, plan: Plan | None) -> tuple[Permission, ...]:
    """Return the permissions that a run of this plan needs; without a plan, those of any run on this engine."""
    found = [*PERMISSIONS, *_OF_KINDS[engine]]
    if plan is None or plan.preparations:
        found += [each for each in _JOBS if each not in found]
    if plan is None or cluster_of(plan).network_policy:
        found += [Permission(verb, "networkpolicies", "networking.k8s.io") for verb in ("list", "create")]
    if plan is None or names.created_claims(plan):
        found += [Permission(verb, "persistentvolumeclaims") for verb in ("get", "create")]
    if plan is None or names.secrets(plan):
        found += [Permission(verb, "secrets") for verb in ("list", "create")]
    return tuple(found)


async def check_cluster(plan: Plan) -> Plan:
    """Check that the cluster answers, has the namespace and grants the permissions; raise EngineError if not.

    Return the plan with kubeconfig, context and namespace, which later supervisors use.
    """
    cluster = cluster_of(plan)

    async with open_api(cluster.context, cluster.namespace) as api:
        await api.require_namespace()
        await require_permissions(api, permissions_of(plan.engine, plan))
        where = api.where
        found = cluster.replace(kubeconfig=_kubeconfig(os.environ), namespace=where.namespace)
        return with_cluster(plan, found.replace(context=where.context or cluster.context))


async def require_permissions(api: Api, permissions: tuple[Permission, ...]) -> None:
    """Raise RefusedError for missing permissions; one that cannot be checked counts as granted."""
    if missing := await find_denied(api, permissions):
        namespace, words = api.namespace, listed([str(each) for each in missing])
        tries = f"{api.where.kubectl} auth can-i {missing[0]} -n {namespace}"
        raise RefusedError(
            f"you may not {words} in the namespace `{namespace}`",
            hint=f"ask for a role that allows it; check with `{tries}`",
            status=403,
        )


async def find_denied(api: Api, permissions: tuple[Permission, ...]) -> list[Permission]:
    """Return the permissions that the user does not have."""
    allowed = await asyncio.gather(*(_may(api, permission) for permission in permissions))
    return [permission for permission, may in zip(permissions, allowed, strict=True) if not may]


async def _may(api: Api, permission: Permission) -> bool:
    asked = {"namespace": api.namespace, **to_dict(permission)}
    review = new_object("SelfSubjectAccessReview", {}, spec={"resourceAttributes": asked})
    try:
        return bool((await api.create(review))["status"]["allowed"])
    except RefusedError as error:
        if error.status == 401:
            raise
        return True


def _kubeconfig(environ: Mapping[str, str]) -> str | None:
    """Return KUBECONFIG with absolute paths."""
    named = [os.path.abspath(name) for name in environ.get("KUBECONFIG", "").split(os.pathsep) if name]  # noqa: PTH100
    return os.pathsep.join(named) or None
