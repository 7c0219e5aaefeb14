"""Inject faults into replicas of this machine, and undo them: for drills."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from contextlib import suppress
from pathlib import Path

from drumline.engine.local.netlink import Netlink
from drumline.engine.local.network import open_hub
from drumline.engine.local.planned import local_plan
from drumline.engine.local.trace import Trace, read_trace
from drumline.errors import EngineError
from drumline.plan.types import Plan, ReplicaId
from drumline.run.drill import Fault
from drumline.run.traces import TRACE
from drumline.runtime.child import start_python
from drumline.runtime.keeper import boot_id, enter_namespace

_SIGNALS = {Fault.KILL: signal.SIGKILL, Fault.TERM: signal.SIGTERM, Fault.PAUSE: signal.SIGSTOP}


class LocalFaultInjector:
    """Sends signals to replicas, and cuts the connections of private networks."""

    def find_problem(self, plan: Plan, fault: Fault) -> str | None:
        """Return why this fault cannot be injected, None if it can; a cut needs a private network."""
        if fault is Fault.CUT and not local_plan(plan).private_network:
            return "only a private network can be cut: `engine: {local: {network: private}}`"
        return None

    def inject(self, traces: Path, replica: ReplicaId, fault: Fault) -> None:
        """Inject a fault into the incarnation with these traces; raise EngineError if it does not run."""
        trace = read_trace(traces / TRACE)
        if not trace.is_running(boot_id()):
            raise EngineError(f"{replica} does not run")
        if fault is Fault.CUT:
            _set_link(trace, replica, up=False)
        else:
            _signal(trace, replica, _SIGNALS[fault])

    def undo(self, traces: Path, replica: ReplicaId, fault: Fault) -> None:
        """Continue a paused incarnation or reconnect a cut one, if it runs."""
        trace = read_trace(traces / TRACE)
        if trace.is_running(boot_id()):
            with suppress(EngineError):  # it has just ended
                if fault is Fault.PAUSE:
                    _signal(trace, replica, signal.SIGCONT)
                elif fault is Fault.CUT:
                    _set_link(trace, replica, up=True)


def _signal(trace: Trace, replica: ReplicaId, number: int) -> None:
    if trace.pid is None:
        raise AssertionError("a replica that runs has a pid")
    try:
        os.killpg(trace.pid, number)
    except (ProcessLookupError, PermissionError) as error:
        raise EngineError(f"cannot send a signal to {replica}: {error.strerror}") from None


def _set_link(trace: Trace, replica: ReplicaId, *, up: bool) -> None:
    """Set a replica's link up or down in the network that its keeper holds."""
    hub = open_hub(trace.keeper) if trace.keeper else None
    if hub is None:
        raise EngineError(f"{replica} has no private network")
    words = (*map(str, hub.descriptors), str(replica), "up" if up else "down")
    try:
        with start_python(__name__, *words, descriptors=hub.descriptors, stdout=subprocess.PIPE) as child:
            refused = child.communicate()[0].decode().strip()
    except OSError as error:
        refused = error.strerror or str(error)
    finally:
        for descriptor in hub.descriptors:
            os.close(descriptor)
    if refused:
        raise EngineError(f"cannot set the network link of {replica} {words[-1]}: {refused}")


def main(user: str, network: str, link: str, state: str) -> None:
    """Set a link in these namespaces up or down; print the error if that fails."""
    try:
        enter_namespace(int(user))
        enter_namespace(int(network))
        with Netlink() as netlink:
            netlink.set_up(socket.if_nametoindex(link), up=state == "up")
    except OSError as error:
        print(error.strerror or error)  # noqa: T201
