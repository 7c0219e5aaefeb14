"""Read what only the first version of TFJob has: servers without a template, and the replica that decides the end."""

from __future__ import annotations

from collections.abc import Collection

from drumline.spec.dialect.draft import SpecDraft
from drumline.spec.dialect.pod import Pod
from drumline.spec.dialect.tracked_node import TrackedNode

# What the operator started for a parameter server without a template: a server that reads TF_CONFIG.
_SERVER = (
    "import tensorflow as tf; r = tf.distribute.cluster_resolver.TFConfigClusterResolver();"
    " tf.distribute.Server(r.cluster_spec(), job_name=r.task_type, task_index=r.task_id).join()"
)


def server(part: TrackedNode, image: TrackedNode | None, draft: SpecDraft) -> Pod:
    """Return the pod of parameter servers without a template; raise SpecError if no role has an image for it."""
    if image is None:
        raise part.error("has no `template`, and no other role has an image that it could use")
    draft.warn(
        part.location,
        f"has no `template`: like the operator, drumline starts a TensorFlow server in the image {image.text()}",
    )
    return Pod(image, {"run": ({"argv": ["python", "-c", _SERVER]}, part.location)}, {}, (), None, False, part.location)


def read_end(spec: TrackedNode, roles: Collection[str], draft: SpecDraft) -> None:
    """Set which replica decides the end of the run, and whether it has a TensorBoard."""
    policy = spec.read("terminationPolicy")
    chief = policy.read("chief") if policy else None
    name = chief.read("replicaName") if chief else None
    index = chief.read("replicaIndex") if chief else None
    if name and name.text().upper() not in ("MASTER", "WORKER"):
        raise name.error(f"expected MASTER or WORKER, got `{name.text()}`")
    if name and index and name.text().upper() == "WORKER" and index.integer() != 0:
        draft.warn(index.location, "is not carried over: the first worker decides the end of the run")
    if "worker" in roles and ("chief" not in roles or (name and name.text().upper() == "WORKER")):
        draft.put(("success",), "worker-0", (name or spec).location)
    if board := spec.read("tensorboard"):
        draft.put(("tensorboard",), True, board.location)
        draft.warn(board.location, "reads the summaries in OUTPUT_DIR; its other keys are not carried over")
    for key in ("runtimeId", "RuntimeId"):
        spec.read(key)
