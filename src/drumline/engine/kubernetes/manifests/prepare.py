"""The Job that makes data before any replica starts: it writes to a volume that replicas only read."""

from __future__ import annotations

import posixpath
import shlex

from drumline.engine.kubernetes import names
from drumline.engine.kubernetes.manifests import pod, volumes
from drumline.engine.kubernetes.manifests.jobs import job
from drumline.engine.kubernetes.manifests.variables import variables
from drumline.engine.kubernetes.paths import Object
from drumline.engine.kubernetes.place import RUNTIME, place_helper
from drumline.plan.bind import bind_preparations
from drumline.plan.types import Launch, Plan, Replica, ReplicaId, Resources

_SCRIPT = posixpath.join(RUNTIME, "drumline", "runtime", "prepare.py")


def preparation(plan: Plan, helper: ReplicaId, *, parts: int, incarnation: int = 0) -> Object:
    """Return the Job of a preparation; its data appears complete, under the name that replicas wait for."""
    place = place_helper(plan)
    item = next(each for each in bind_preparations(plan, place) if each.preparation.id == helper)
    launch = Launch(Replica(helper, str(helper), item.preparation.argv, {}, Resources()), 0, place, item.env)
    labels = names.labels_of(plan, helper, 0, incarnation)
    content = pod.PodContent(
        argv=item.preparation.argv,
        variables=variables([launch], shared_in="", secrets_in=names.secret(plan)),
        resources=Resources(),
        place=place,
        mounts=volumes.mounts_of_preparation(plan, item.preparation.variable, parts),
        labels=labels,
        carries=parts > 0,
        becomes=_make(item.path, item.partial),
    )
    return job(plan, names.job(plan, helper, 0, incarnation), labels, pod.template(plan, content))


def _make(path: str, partial: str) -> str:
    """Return shell code that runs a preparation: by `prepare.py`, or without Python by the shell and without a lock."""
    folder, beside = shlex.quote(path), shlex.quote(partial)
    return "\n".join(
        (
            f"if python3 -c '' 2> /dev/null && [ -e {_SCRIPT} ]",
            f'then exec python3 -IS {_SCRIPT} {folder} {beside} "$@"',
            "fi",
            "set -e",
            f"[ ! -e {folder} ] || exit 0",
            f"mkdir -p {beside}",
            '"$@"',
            f"mv {beside} {folder}",
        )
    )
