"""What only the first version of TFJob has: a list of roles, unnamed servers, and which replica decides the end."""

from __future__ import annotations

from collections.abc import Collection

from drumline.spec.dialect.draft import Draft
from drumline.spec.dialect.part import Part
from drumline.spec.dialect.pod import Pod

# What the operator started where a parameter server has no template: a server that reads TF_CONFIG.
_SERVER = (
    "import tensorflow as tf; r = tf.distribute.cluster_resolver.TFConfigClusterResolver();"
    " tf.distribute.Server(r.cluster_spec(), job_name=r.task_type, task_index=r.task_id).join()"
)


def server(part: Part, image: Part | None, draft: Draft) -> Pod:
    """The pod of parameter servers without a template; raise SpecError where no role has an image for it."""
    if image is None:
        raise part.refuse("has no `template`, and no other role has an image that it could take")
    draft.lose(
        part.spot,
        f"has no `template`: as the operator did, drumline starts a server of TensorFlow, in the image {image.text()}",
    )
    return Pod(image, {"run": ({"argv": ["python", "-c", _SERVER]}, part.spot)}, {}, (), None, False, part.spot)


def read_end(spec: Part, roles: Collection[str], draft: Draft) -> None:
    """Put which replica decides the end of the run, and whether there is a TensorBoard."""
    policy = spec.take("terminationPolicy")
    chief = policy.take("chief") if policy else None
    name = chief.take("replicaName") if chief else None
    index = chief.take("replicaIndex") if chief else None
    if name and name.text().upper() not in ("MASTER", "WORKER"):
        raise name.refuse(f"expected MASTER or WORKER, got `{name.text()}`")
    if name and index and name.text().upper() == "WORKER" and index.whole() != 0:
        draft.lose(index.spot, "is not carried over: of the workers, the first decides")
    if "worker" in roles and ("chief" not in roles or (name and name.text().upper() == "WORKER")):
        draft.put(("success",), "worker-0", (name or spec).spot)
    if board := spec.take("tensorboard"):
        draft.put(("tensorboard",), True, board.spot)
        draft.lose(board.spot, "looks for summaries in OUTPUT_DIR here; what more is said of it is not carried over")
    for key in ("runtimeId", "RuntimeId"):
        spec.take(key)
