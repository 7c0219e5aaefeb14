"""``drumline drill``: inject a fault into a replica and report how the run recovers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping

import click

from drumline.cli.drill_report import Bounds, show_report
from drumline.cli.drill_run import Drill, Moment
from drumline.cli.find import find_run
from drumline.cli.options import PARAMETER_OPTION, SECONDS, engine_flags
from drumline.cli.terminal import print_line
from drumline.cli.text import FORM_OPTION, warn
from drumline.cli.train import require_launchable
from drumline.engine.abilities import FaultInjector, Reachable, Sabotable, require
from drumline.engine.protocol import Engine
from drumline.engine.registry import open_engine
from drumline.errors import InputError
from drumline.load.load import Loaded, load
from drumline.plan.types import Plan, ReplicaId, Restart
from drumline.record import to_dict
from drumline.run.drill import Fault, default_target
from drumline.run.id import Target, parse_target
from drumline.runtime.lock import is_locked
from drumline.store.access import open_home
from drumline.store.folder import RunFolder
from drumline.supervise.detach import held_interrupts, start_supervisor
from drumline.supervise.launch import make_run
from drumline.supervise.requests import read_state, stop_run, supervisor_gone
from drumline.supervise.site import site_of, site_of_run
from drumline.words import listed, printable

# The classes of failures for which the drill allows a restart.
_CLASSES = ("crash", "lost", "preempted", "hang", "rendezvous")


@click.command()
@click.argument("what", required=False, metavar="[ID|FILE]")
@click.option("--kill", metavar="REPLICA", help="Kill this replica with SIGKILL: worker.1, or ps for the last one.")
@click.option("--term", metavar="REPLICA", help="Send SIGTERM to this replica, as a preempted host does.")
@click.option("--pause", metavar="REPLICA", help="Pause this replica with SIGSTOP, as if it hung.")
@click.option("--net-cut", metavar="REPLICA", help="Cut the network of this replica; needs `network: private`.")
@click.option("--at-step", type=click.IntRange(min=0), metavar="N", help="When a replica has taken this step.")
@click.option("--at-start", is_flag=True, help="When its process starts, before the rendezvous.")
@click.option("--after", type=SECONDS, metavar="TIME", help="This long after the last replica has started: 10s.")
@click.option("--within", type=SECONDS, metavar="TIME", help="Fail if the first new step takes longer than this.")
@click.option("--steps-lost", type=click.IntRange(min=0), metavar="N", help="Fail if more steps than this are lost.")
@PARAMETER_OPTION
@engine_flags
@click.option("--keep", is_flag=True, help="Do not stop the run that was started for the drill.")
@click.option("-y", "--yes", is_flag=True, help="Confirm a fault in a run that is not the drill's own.")
@FORM_OPTION
@click.pass_context
def command(
    ctx: click.Context,
    /,
    what: str | None,
    *,
    at_step: int | None,
    at_start: bool,
    after: float | None,
    within: float | None,
    steps_lost: int | None,
    given: tuple[str, ...],
    on: str | None,
    flags: Mapping[str, str],
    keep: bool,
    yes: bool,
    form: str,
    **faults: str | None,
) -> None:
    """Inject a fault into one replica and report how the run recovers.

    FILE (default: drumline.yml) is started for the drill and stopped after it. A running ID needs --yes. By default a
    worker that is not the chief is killed after the first step. The exit code is 0 if the run recovered, named the
    right cause and kept the limits, otherwise 1.
    """
    moment = _moment(at_step, after, at_start=at_start)
    fault, replica_name = _choose_fault(faults)
    target = _target(what)
    if target:
        folder, replica, fault_injector = _take_running(target, replica_name, fault, yes=yes)
    else:
        loaded = load(what, parameters=given, on=on, flags=flags, unique=True, complete=True)
        folder, replica, fault_injector = _start(loaded, replica_name, fault)
    is_own = target is None
    drill = Drill(folder, replica, fault, fault_injector)
    passed = False
    try:
        if drill.wait(moment):
            reached = drill.inject()
            where = "" if reached is None else f" at step {reached}"
            print_line(f"drumline: {_DONE[fault]} {folder.id}.{replica}{where}", err=True)
            report = drill.observe(within)
            passed = show_report(folder, report, Bounds(within, steps_lost), form)
        else:
            print_line(f"drumline: {drill.too_late} before the moment of the fault; no fault was injected", err=True)
    finally:
        if is_own and not keep and not read_state(folder).phase.is_final:
            stop_run(folder, force=True)
            print_line(f"drumline: stopped run {folder.id}, which was started for the drill", err=True)
    ctx.exit(0 if passed else 1)


_DONE = {Fault.KILL: "killed", Fault.TERM: "sent TERM to", Fault.PAUSE: "paused", Fault.CUT: "cut the network of"}


def _moment(step: int | None, after: float | None, *, at_start: bool) -> Moment:
    """Return the moment of the fault; raise InputError if several options name one."""
    if sum((step is not None, after is not None, at_start)) > 1:
        raise InputError("more than one moment", hint="choose one of `--at-step`, `--at-start` and `--after`")
    return Moment(step, at_start=at_start, after_seconds=after)


def _choose_fault(faults: dict[str, str | None]) -> tuple[Fault, str | None]:
    """Return the fault and the replica of the one fault option that is set; by default KILL and None."""
    named = [
        (Fault(name.replace("_", "-")), replica_name)
        for name, replica_name in faults.items()
        if replica_name is not None
    ]
    if len(named) > 1:
        raise InputError(f"more than one fault: --{named[0][0]} and --{named[1][0]}", hint="a drill injects one fault")
    return named[0] if named else (Fault.KILL, None)


def _target(what: str | None) -> Target | None:
    """Return the run or replica that an argument names; None if the argument is a file."""
    return parse_target(what) if what and what[0].isdecimal() and not os.path.lexists(what) else None


def _take_running(
    target: Target, replica_name: str | None, fault: Fault, *, yes: bool
) -> tuple[RunFolder, ReplicaId, FaultInjector]:
    """Return the folder of a running run, the replica and its fault injector; raise InputError without `yes`."""
    folder = find_run(open_home(os.environ), target.run)
    plan, state = folder.plan(), read_state(folder)
    if state.phase.is_final:
        raise InputError(f"run {folder.id} is over: {state.phase}", hint="name a run that is not over, or a spec")
    if not is_locked(folder.lock_file):
        raise supervisor_gone(folder)
    named = replica_name or (f"{target.role}.{target.number}" if target.number is not None else target.role)
    replica, fault_injector = _prepare(plan, named, fault, open_engine(plan.engine, site_of_run(folder)))
    if not yes:
        raise InputError(
            f"a drill injects a fault into {folder.id}.{replica}, which is training",
            hint="confirm with `--yes`, or drill a spec instead",
        )
    return folder, replica, fault_injector


def _start(loaded: Loaded, replica_name: str | None, fault: Fault) -> tuple[RunFolder, ReplicaId, FaultInjector]:
    """Start a spec as a new run, with one restart allowed if the spec allows none."""
    site = site_of(loaded.directory)
    engine = open_engine(loaded.plan.engine, site)
    replica, fault_injector = _prepare(loaded.plan, replica_name, fault, engine)
    warn(*loaded.warnings)
    require_launchable(engine, loaded.plan)
    reached, _ = asyncio.run(engine.reach(loaded.plan)) if isinstance(engine, Reachable) else (loaded.plan, ())
    with held_interrupts():
        folder, plan = make_run(
            lambda run: _allow_restart(loaded.plan_as(run).replace(options=reached.options)),
            site,
            spec=loaded.data,
        )
        start_supervisor(folder)
    if plan.restart != loaded.plan.restart:
        warn("the spec allows no restart; the drill allows one")
    print_line(f"drumline: started run {folder.id} ({plan.name}) for the drill", err=True)
    return folder, replica, fault_injector


def _prepare(plan: Plan, replica_name: str | None, fault: Fault, engine: Engine) -> tuple[ReplicaId, FaultInjector]:
    """Return the replica and the fault injector; raise InputError if the fault is not possible."""
    replica = _find_replica(plan, replica_name)
    fault_injector = require(engine, Sabotable, "a drill", plan.engine).fault_injector()
    if problem := fault_injector.find_problem(plan, fault):
        raise InputError(f"--{fault} {replica}: {problem}")
    if fault is Fault.PAUSE and plan.timeouts.progress_seconds is None:
        raise InputError(
            f"--pause {replica}: this would not be noticed, since the spec has no `timeouts.progress`",
            hint="add a time without progress after which a run hangs: `timeouts: {progress: 2m}`",
        )
    return replica, fault_injector


def _find_replica(plan: Plan, replica_name: str | None) -> ReplicaId:
    """Return the replica of this name; for the name of a role, its last replica that is not the chief."""
    if replica_name is None:
        return default_target(plan)
    if replica_name in ("chief", "chief.0", "master") and plan.chief:
        return plan.chief  # it may be worker.0
    ids = [replica.id for replica in plan.replicas]
    meant = [each for each in ids if replica_name in (str(each), each.role)]
    if not meant:
        known = listed([str(each) for each in ids[:12]]) + ("…" if len(ids) > 12 else "")
        raise InputError(f"the run has no replica {printable(replica_name)}", hint=f"it has {known}")
    return next((each for each in reversed(meant) if each != plan.chief), meant[0])


def _allow_restart(plan: Plan) -> Plan:
    """Return the plan with one restart for each class of failure, or unchanged if it allows any restart."""
    own = plan.restart
    if any(getattr(own, name) for name in _CLASSES):
        return plan
    return plan.replace(restart=Restart(**{**to_dict(own), **dict.fromkeys(_CLASSES, 1)}))
