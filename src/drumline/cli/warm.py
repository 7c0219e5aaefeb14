"""``drumline warm``: the processes with an imported framework that replicas are forked from."""

from __future__ import annotations

import time
from pathlib import Path

import click

from drumline.cli.terminal import print_json, print_line, print_lines
from drumline.cli.text import FORM_OPTION, table
from drumline.default import DEFAULT_ENGINE
from drumline.engine.abilities import Warming, require
from drumline.engine.registry import open_engine
from drumline.engine.warm import WarmPool, WarmProcess
from drumline.errors import NotFoundError
from drumline.record import to_dict
from drumline.supervise.site import site_of
from drumline.words import count, format_duration, size


@click.group(invoke_without_command=True)
@FORM_OPTION
@click.pass_context
def command(ctx: click.Context, form: str) -> None:
    """Show the warm processes of this machine: replicas forked from them have their framework already imported.

    They exit when they are not used for some time, when memory runs low, or when a file of their environment changes.
    Warm processes on hosts are not shown.
    """
    if ctx.invoked_subcommand:
        return
    found = _pool().processes()
    if form == "json":
        print_json([to_dict(each) for each in found])
        return
    if not found:
        print_line("there is no warm process on this machine; `drumline train` starts one when it makes starts faster")
        return
    rows = [
        (
            each.key[:8],
            ", ".join((each.framework, *each.modules)),
            each.python,
            "-" if each.memory_bytes is None else size(each.memory_bytes),
            format_duration(max(0.0, time.time() - each.began)),
            str(each.replicas),
            _state(each),
        )
        for each in found
    ]
    print_lines(table(("KEY", "IMPORTED", "ENVIRONMENT", "MEMORY", "AGE", "REPLICAS", "NOW"), rows))


def _pool() -> WarmPool:
    engine = open_engine(DEFAULT_ENGINE, site_of(Path.cwd()))
    return require(engine, Warming, "forking from warm processes", DEFAULT_ENGINE).warm_pool()


def _state(known: WarmProcess) -> str:
    """Return the state of a warm process, or the reason for which no replica is forked from it."""
    if not known.ready:
        return "starting"
    in_use = known.runs and f"in use by {count(known.runs, 'run')}"
    return in_use or known.unfit or f"kept {format_duration(known.keep_seconds)}"


@command.command()
@click.argument("keys", nargs=-1, metavar="[KEY]...")
def stop(keys: tuple[str, ...]) -> None:
    """Stop the warm processes KEY of this machine, or all.

    Replicas that were forked from them continue.
    """
    pool = _pool()
    full = {each.key for each in pool.processes()} if keys else set()
    for key in keys:
        if not any(each.startswith(key) for each in full):
            raise NotFoundError(f"there is no warm process {key} on this machine", hint="`drumline warm` lists them")
    chosen = [each for each in full if each.startswith(keys)]
    stopped = pool.stop(chosen)
    print_line(f"stopped {stopped} warm process{'' if stopped == 1 else 'es'}")
