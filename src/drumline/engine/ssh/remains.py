"""The files of a run on hosts: its output, what remains when the run is removed, and unverified hosts."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from drumline.engine.output import RunOutput, retained_output
from drumline.engine.ssh.folders import read_origin
from drumline.engine.ssh.plan_options import hosts_of
from drumline.run.traces import UNREACHED
from drumline.run.unverified import UnverifiedHost, unverified_from_text
from drumline.words import format_duration


def describe_output(run_output: RunOutput) -> str:
    """Return a description of where the output is: on this machine if it was fetched, and from which host."""
    origin = read_origin(run_output.run_dir)
    if origin is None:
        return str(run_output.folder)
    place = f"{origin.output_dir} on {origin.host}"
    if origin.is_shared:
        return f"{place}, which the hosts share: `drumline cp {run_output.plan.run}: .` fetches it"
    if origin.fetched_at is None:
        return f"{place}, not fetched so far"
    if origin.is_whole:
        return f"{run_output.folder}, fetched from {origin.host}"
    return f"{run_output.folder}, fetched {format_duration(time.time() - origin.fetched_at, parts=1)} ago from {place}"


def remains(run_output: RunOutput) -> Iterator[str]:
    """Yield a description of the output folder if it remains when the run is removed."""
    origin = read_origin(run_output.run_dir)
    if origin and origin.is_shared:
        yield f"its output stays in {origin.output_dir} on {origin.host}"
    else:
        yield from retained_output(run_output)


def unverified_hosts(run_output: RunOutput) -> Sequence[UnverifiedHost]:
    """Return the hosts that did not confirm, at the end of the run, that no process of it remains there."""
    try:
        text = (run_output.run_dir / UNREACHED).read_text()
    except FileNotFoundError:
        return ()
    lease_seconds = hosts_of(run_output.plan).lease_seconds
    return [each.replace(lease_seconds=lease_seconds) for each in unverified_from_text(text)]
