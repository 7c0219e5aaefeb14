"""The volumes of runs that are to be forgotten."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from drumline.cli.inspect import output_of
from drumline.cli.terminal import confirm, print_line
from drumline.errors import EngineError, InputError
from drumline.plan.types import Plan
from drumline.view.run import RunDetails


def remove_volumes(runs: Sequence[RunDetails], *, yes: bool) -> None:
    """Say what will be deleted, ask unless that is answered already, and delete it."""
    doomed = []
    for details in runs:
        output = output_of(details)
        found = output.volumes()
        for volume in found:
            print_line(f"run {details.plan.run}: {volume.words}", err=True)
        if found:
            doomed.append((output, [volume.name for volume in found]))
    if not doomed:
        print_line("no volume was made for them that is still there", err=True)
        return
    if not yes:
        if not sys.stdin.isatty():
            raise InputError("volumes are deleted only if somebody says so", hint="say `--yes`")
        confirm("Delete that, for ever?")
    for output, names in doomed:
        output.remove(names)
        for name in names:
            print_line(f"deleted the claim {name}")


def cluster_output(plan: Plan) -> str:
    """Where a run in a cluster writes, in words; nobody is asked."""
    from drumline.engine.kubernetes.names import output_claim  # noqa: PLC0415 - only for such runs
    from drumline.engine.kubernetes.place import place_helper  # noqa: PLC0415

    claim, folder = output_claim(plan), place_helper(plan).output_dir
    if claim is None:
        return f"{folder} in the pods, gone with them: `engine.{plan.engine}.output` would keep it"
    return f"{folder} on the claim {claim}: `drumline cp {plan.run}: .` fetches it"


def left_behind(details: RunDetails) -> Iterator[str]:
    """What of a run in a cluster stays there; nobody is asked, since the cluster may be away."""
    from drumline.engine.kubernetes.names import made_claims  # noqa: PLC0415 - only for such runs
    from drumline.engine.kubernetes.planned import cluster_of  # noqa: PLC0415

    where = cluster_of(details.plan).namespace
    for name in made_claims(details.plan):
        yield f"its claim {name} stays{f' in {where}' if where else ''}: `kubectl delete pvc {name}` deletes it"


def remove_on_hosts(details: RunDetails) -> Iterator[str]:
    """Remove the folders that a run has on hosts; say where that cannot be."""
    from drumline.engine.ssh.planned import hosts_of  # noqa: PLC0415 - only for such runs

    try:
        output_of(details).remove(hosts_of(details.plan).names)
    except EngineError as error:
        first, *rest = error.message.split("\n")
        yield first
        yield from (f"  {line}" for line in rest)  # a host may have written some of it
