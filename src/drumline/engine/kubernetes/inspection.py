"""A small pod that mounts a run's volumes at the paths that they have in training, for `inspect` and `cp`."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, cast

from drumline.engine.kubernetes import names
from drumline.engine.kubernetes.answer_fields import mapping, mappings, text
from drumline.engine.kubernetes.api import Api, Change
from drumline.engine.kubernetes.manifests import pod as pods
from drumline.engine.kubernetes.manifests.variables import Variables
from drumline.engine.kubernetes.manifests.volumes import mounts
from drumline.engine.kubernetes.paths import Object, name_of, new_object
from drumline.engine.kubernetes.place import place_helper
from drumline.engine.kubernetes.pod_exec import discard, execute
from drumline.engine.kubernetes.pod_status import PodEnded, PodRunning, read_pod_status
from drumline.errors import EngineError, InputError
from drumline.plan.types import Plan, Resources

CONTAINER = pods.REPLICA
INSPECTS = f"{names.PREFIX}/inspects"
_TOKEN = f"{names.PREFIX}/token"
_LONGEST_SECONDS = 8 * 3600  # after which a pod ends even if its client was killed
_HEARTBEAT_SECONDS = 20.0  # so that proxies do not close the connection
_START_SECONDS = 180.0
_OVER = ("Succeeded", "Failed")
_ALONE = ("ReadWriteOnce", "ReadWriteOncePod")
# Exits at once on TERM, which process 1 ignores by default.
_WAIT = ("sh", "-c", f"trap 'exit 0' TERM INT; sleep {_LONGEST_SECONDS} & wait")
# A killed client does not delete the pod; but its connection closes, and then this command ends the pod's processes.
_HOLD_OPEN = ("sh", "-c", "while read -r beat; do :; done; kill -TERM 1; kill -KILL -1")


def _inspection_pod(plan: Plan, unique: str, token: str) -> Object:
    """Return the inspection pod; it has no labels of the run, so that it does not count as a pod of the run.

    The token distinguishes it from a pod that another user has created under its name.
    """
    chief = plan.chief or plan.replicas[0].id
    place = place_helper(plan)
    folders = {"OUTPUT_DIR": place.output_dir, "CHECKPOINT_DIR": place.checkpoint_dir}
    content = pods.PodContent(
        argv=_WAIT,
        variables=Variables(tuple({"name": name, "value": value} for name, value in folders.items()), (), {}),
        resources=Resources(),
        place=place.replace(workdir=place.output_dir),
        mounts=mounts(plan, chief, 0),
        labels={names.MANAGED: "drumline", INSPECTS: names.base(plan)},
        carries=False,
    )
    template = pods.template(plan, content)
    spec = {**template["spec"], "activeDeadlineSeconds": _LONGEST_SECONDS, "terminationGracePeriodSeconds": 1}
    annotations = {**(template["metadata"].get("annotations") or {}), _TOKEN: token}
    named = f"{names.base(plan)}-inspect-{unique}"
    metadata = {**template["metadata"], "name": named, "annotations": annotations}
    return new_object("Pod", metadata, spec=spec)


def require_claims(plan: Plan) -> list[str]:
    """Return the names of the claims of the run; raise InputError if it has none."""
    found = list(names.claims(plan))
    if not found:
        raise InputError(
            f"run {plan.run} has no volume: its output was deleted with its pods",
            hint=f"add one for the next run: `engine: {{{plan.engine}: {{output: {{size: 10GiB}}}}}}`",
        )
    return found


def find_pod_using(all_pods: Iterable[Mapping[str, Any]], claim: str) -> Mapping[str, Any] | None:
    """Return a pod that uses a claim, has not ended and is not an inspection pod."""
    for each in all_pods:
        labels = mapping(mapping(each.get("metadata")).get("labels"))
        if mapping(each.get("status")).get("phase") in _OVER or INSPECTS in labels:
            continue
        for volume in mappings(mapping(each.get("spec")).get("volumes")):
            if mapping(volume.get("persistentVolumeClaim")).get("claimName") == claim:
                return each
    return None


@asynccontextmanager
async def inspection_pod(api: Api, plan: Plan) -> AsyncIterator[str]:
    """Run an inspection pod during the block; yield its name. Raise EngineError if the volume cannot be mounted now."""
    await _require_free(api, plan)
    await _remove_killed(api, plan)
    letters = "".join(secrets.choice("bcdfghjklmnpqrstvwxz2456789") for _ in range(5))
    token = secrets.token_hex(16)
    made = await api.create(_inspection_pod(plan, letters, token))
    name, uid = name_of(made), str(made["metadata"]["uid"])
    if mapping(made["metadata"].get("annotations")).get(_TOKEN) != token:
        raise EngineError(f"there is a pod {name} already, which drumline has not created", hint="try again")
    try:
        await _await_running(api, name, uid)
        staying = asyncio.ensure_future(
            execute(api, name, CONTAINER, _HOLD_OPEN, stdout=discard, stderr=discard, given=_heartbeats())
        )
        try:
            yield name
        finally:
            staying.cancel()
            await asyncio.gather(staying, return_exceptions=True)
    finally:
        await asyncio.shield(api.delete("Pod", name, grace_seconds=0, uid=uid))


async def _heartbeats() -> AsyncIterator[bytes]:
    while True:
        yield b"\n"
        await asyncio.sleep(_HEARTBEAT_SECONDS)


async def _remove_killed(api: Api, plan: Plan) -> None:
    """Delete inspection pods of clients that were killed."""
    for each in await api.list("Pod", f"{INSPECTS}={names.base(plan)}"):
        if mapping(each.get("status")).get("phase") in _OVER and name_of(each).startswith(
            f"{names.base(plan)}-inspect-"
        ):
            await api.delete("Pod", name_of(each), uid=each["metadata"]["uid"])


async def _require_free(api: Api, plan: Plan) -> None:
    for claim in require_claims(plan):
        spec = mapping((await api.read("PersistentVolumeClaim", claim)).get("spec"))
        modes = [text(each) for each in spec.get("accessModes") or ()]
        if set(modes) <= set(_ALONE) and (has := find_pod_using(await api.list("Pod"), claim)):
            node = text(mapping(has.get("spec")).get("nodeName"))
            where = f", on {node}" if node else ""
            raise EngineError(
                f"the volume `{claim}` is {modes[0]} and used by the pod {name_of(has)}{where}",
                hint=f"try again after `drumline wait {plan.run}`; a ReadWriteMany volume can be inspected any time",
            )


async def _await_running(api: Api, name: str, uid: str) -> None:
    """Wait until the pod with this uid runs; raise EngineError with what it waits for, or why it ended."""
    waits = "the reason is unknown"
    watching = cast("AsyncGenerator[Change, None]", api.watch("Pod", fields=f"metadata.name={name}"))
    try:
        async with asyncio.timeout(_START_SECONDS), aclosing(watching):
            async for change in watching:
                for each in change.objects:
                    if each["metadata"].get("uid") != uid:
                        raise EngineError(f"the pod {name} was replaced by another")
                    status = read_pod_status(each, now=time.time(), deleted=change.what == "DELETED")
                    if isinstance(status, PodRunning):
                        return
                    if isinstance(status, PodEnded):
                        raise EngineError(f"the inspection pod ended: {status.exit.message}")
                    waits = status.message or waits
                    if status.is_fatal:
                        raise EngineError(f"the inspection pod cannot start: {waits}")
    except TimeoutError:
        raise EngineError(f"the inspection pod did not start within {_START_SECONDS:.0f} s: {waits}") from None
