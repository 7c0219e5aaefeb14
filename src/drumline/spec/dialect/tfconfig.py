"""Translate a TF_CONFIG to a spec for the hosts that it names, with the same hosts and ports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from drumline.spec.dialect.draft import SpecDraft
from drumline.spec.location import Location

# The order of roles on a host: those that compute first.
_ROLES = ("chief", "worker", "ps", "evaluator")


def translate(
    cluster: Mapping[str, Sequence[tuple[str, int]]],
    *,
    source: str,
    project: str,
    run: str | None,
    local: bool,
    has_evaluator: bool = False,
    model_dir: str | None = None,
) -> SpecDraft:
    """Return the draft for a cluster of roles and addresses; `local` if all of them are this machine.

    An evaluator may have no address, as in its own TF_CONFIG. Estimator reads `model_dir` from TF_CONFIG.
    """
    draft = SpecDraft("", Location(source, 1))

    def location(*path: str | int) -> Location:
        return Location(source, 1, ("cluster", *path))

    draft.put(("project",), project, draft.location)
    draft.put(("framework",), "tensorflow", draft.location)
    note = "" if run else "TF_CONFIG has no command: write the one that its nodes run."
    draft.put(("run",), run or "python train.py", draft.location, note)
    for role in _ROLES:
        addresses = cluster.get(role)
        if not addresses:
            continue
        draft.put(("roles", role, "replicas"), len(addresses), location(role))
        draft.put(("roles", role, "port"), [port for _, port in addresses], location(role))
        if not local:
            draft.put(("roles", role, "hosts"), [host for host, _ in addresses], location(role))
    if has_evaluator and not cluster.get("evaluator"):
        draft.put(("roles", "evaluator", "replicas"), 1, location(), "It has no address in TF_CONFIG.")
        if not local:
            host = next(addresses[0][0] for role in _ROLES if (addresses := cluster.get(role)))
            draft.put(("roles", "evaluator", "hosts"), [host], location())
            task = Location(source, 1, ("task",))
            draft.warn(task, f"has no host for the evaluator: it runs on {host}; change `hosts` to move it")
    if model_dir is not None:
        _put_model_dir(draft, model_dir)
    if local:
        draft.put(("engine", "default"), "local", draft.location, "All addresses are of this machine.")
        return draft
    hosts = dict.fromkeys(host for role in _ROLES for host, _ in cluster.get(role, ()))
    draft.put(("engine", "default"), "ssh", draft.location)
    entries = [{"host": host, "address": host} for host in hosts]
    note = "`host` is the name for ssh, `address` the name for replicas: change the former if they differ."
    draft.put(("engine", "ssh", "hosts"), entries, draft.location, note)
    return draft


def _put_model_dir(draft: SpecDraft, folder: str) -> None:
    """Set the folder that Estimator reads from TF_CONFIG as the output: drumline writes TF_CONFIG without it."""
    location = Location(draft.location.source, 1, ("model_dir",))
    if "://" not in folder and folder:
        draft.put(("output",), folder, location, "Programs find it in OUTPUT_DIR.")
    draft.warn(
        location,
        f"`{folder}` is not in the TF_CONFIG that drumline writes: pass it in the script,"
        ' `RunConfig(model_dir=os.environ["OUTPUT_DIR"])`, or as an argument of the command',
    )
