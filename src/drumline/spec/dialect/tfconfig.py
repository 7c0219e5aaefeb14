"""A TF_CONFIG that somebody typed, as a spec for the hosts that it names: every host and port stays where it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from drumline.spec.dialect.draft import Draft
from drumline.spec.spot import Spot

# As they stand on a host in turn: who computes first.
_ROLES = ("chief", "worker", "ps", "evaluator")


def translate(
    cluster: Mapping[str, Sequence[tuple[str, int]]], *, source: str, project: str, run: str | None, local: bool
) -> Draft:
    """The spec of a cluster of roles and addresses; `local` if all of them are this machine."""
    draft = Draft("", Spot(source, 1))

    def spot(*path: str | int) -> Spot:
        return Spot(source, 1, ("cluster", *path))

    draft.put(("project",), project, draft.spot)
    draft.put(("framework",), "tensorflow", draft.spot)
    note = "" if run else "TF_CONFIG does not say what its nodes run: say it here."
    draft.put(("run",), run or "python train.py", draft.spot, note)
    for role in _ROLES:
        addresses = cluster.get(role)
        if not addresses:
            continue
        draft.put(("roles", role, "replicas"), len(addresses), spot(role))
        draft.put(("roles", role, "port"), [port for _, port in addresses], spot(role))
        if not local:
            draft.put(("roles", role, "hosts"), [host for host, _ in addresses], spot(role))
    if local:
        draft.put(("engine", "default"), "local", draft.spot, "All of them are this machine.")
        return draft
    hosts = dict.fromkeys(host for role in _ROLES for host, _ in cluster.get(role, ()))
    draft.put(("engine", "default"), "ssh", draft.spot)
    entries = [{"host": host, "address": host} for host in hosts]
    note = "`host` is what ssh calls it, `address` what peers and roles do: change the former where they differ."
    draft.put(("engine", "ssh", "hosts"), entries, draft.spot, note)
    return draft
