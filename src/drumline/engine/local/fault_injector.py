"""Hurting a replica from outside, on purpose, and undoing what can be undone: for drills."""

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
    """Sends signals to processes of this machine, and pulls the cables of private networks."""

    def find_problem(self, plan: Plan, fault: Fault) -> str | None:
        """Only a network of the line's own can be cut without fault to others."""
        if fault is Fault.CUT and not local_plan(plan).private_network:
            return "a network can be cut only where the line has one of its own: `engine: {local: {network: private}}`"
        return None

    def inject(self, traces: Path, replica: ReplicaId, fault: Fault) -> None:
        """Do this to the life with these traces; raise EngineError if it does not live."""
        trace = read_trace(traces / TRACE)
        if not trace.is_running(boot_id()):
            raise EngineError(f"{replica} has no process that could be hurt")
        if fault is Fault.CUT:
            _switch(trace, replica, on=False)
        else:
            _signal(trace, replica, _SIGNALS[fault])

    def undo(self, traces: Path, replica: ReplicaId, fault: Fault) -> None:
        """Let it go on, or plug it in again, if it lives."""
        trace = read_trace(traces / TRACE)
        if trace.is_running(boot_id()):
            with suppress(EngineError):  # it has just ended
                if fault is Fault.PAUSE:
                    _signal(trace, replica, signal.SIGCONT)
                elif fault is Fault.CUT:
                    _switch(trace, replica, on=True)


def _signal(trace: Trace, replica: ReplicaId, number: int) -> None:
    if trace.pid is None:
        raise AssertionError("who lives has a process")
    try:
        os.killpg(trace.pid, number)
    except (ProcessLookupError, PermissionError) as error:
        raise EngineError(f"{replica} cannot be hurt: {error.strerror}") from None


def _switch(trace: Trace, replica: ReplicaId, *, on: bool) -> None:
    """Switch a replica's cable off or on, where it is plugged in: in the network that its keeper holds."""
    hub = open_hub(trace.keeper) if trace.keeper else None
    if hub is None:
        raise EngineError(f"{replica} is in no network of its own")
    words = (*map(str, hub.descriptors), str(replica), "on" if on else "off")
    try:
        with start_python(__name__, *words, descriptors=hub.descriptors, stdout=subprocess.PIPE) as child:
            refused = child.communicate()[0].decode().strip()
    except OSError as error:
        refused = error.strerror or str(error)
    finally:
        for descriptor in hub.descriptors:
            os.close(descriptor)
    if refused:
        raise EngineError(f"the network of {replica} cannot be switched: {refused}")


def main(user: str, network: str, cable: str, switched: str) -> None:
    """Switch a cable in the network of these namespaces; print why it cannot be."""
    try:
        enter_namespace(int(user))
        enter_namespace(int(network))
        with Netlink() as wires:
            wires.switch(socket.if_nametoindex(cable), on=switched == "on")
    except OSError as error:
        print(error.strerror or error)  # noqa: T201
