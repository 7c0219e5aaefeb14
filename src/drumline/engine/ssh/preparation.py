"""Run helpers on all hosts that answer, and later on hosts that connect late."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from drumline.engine.protocol import ReportEvent
from drumline.engine.ssh.connection import HostConnection
from drumline.engine.ssh.delivery import deliver_when_connected
from drumline.engine.ssh.helpers import Helpers, PartEnded, with_secrets
from drumline.engine.ssh.host_placement import host_plan
from drumline.engine.ssh.inbox import Inbox, Prepared
from drumline.engine.ssh.orders import Orders
from drumline.engine.ssh.placement_request import CONNECT_SECONDS
from drumline.engine.ssh.plan_options import hosts_of
from drumline.engine.ssh.replicas import HOST_LOST
from drumline.engine.ssh.sync import ProjectSync
from drumline.engine.tasks import Tasks
from drumline.errors import DrumlineError, EngineError
from drumline.plan.codec import plan_to_json
from drumline.plan.types import Plan
from drumline.run.failure import describe_exit
from drumline.run.incarnation import Incarnation
from drumline.runtime.keeper import now

_PAUSE_SECONDS = 0.1
_HINDERED_SECONDS = 1.0  # for which helpers wait for a host that cannot be reached


class Preparation:
    """Sends the project to hosts and runs the helpers of a run there, in tasks.

    The result of a host that connected late is put into the inbox.
    """

    def __init__(
        self,
        plan: Plan,
        connections: Mapping[str, HostConnection],
        helpers: Helpers,
        sync: ProjectSync,
        orders: Orders,
        tasks: Tasks,
        inbox: Inbox,
        report: ReportEvent,
    ) -> None:
        self._plan = plan
        self._connections = connections
        self._helpers = helpers
        self._sync = sync
        self._orders = orders
        self._tasks = tasks
        self._inbox = inbox
        self._report = report
        self._awaiting_hosts: set[Incarnation] = set()  # helpers for which it is not known yet which hosts answer

    def prepare(self, plan: Plan, helper: Incarnation) -> None:
        """Begin a helper on every host that answers in time; all its parts are reported as one helper."""
        plan = with_secrets(plan, os.environ)
        if self._helpers.has_begun(helper):
            self._begin(plan, helper, ())
        elif helper not in self._awaiting_hosts:
            self._awaiting_hosts.add(helper)
            self._tasks.begin(self._find_hosts(plan, helper))

    def stop(self, helper: Incarnation, grace_seconds: float) -> None:
        """Stop a helper on all hosts where it runs or is about to start."""
        self._awaiting_hosts.discard(helper)
        self._send_orders(self._helpers.stop(helper, grace_seconds))

    def join(self, host: str) -> bool:
        """Run the next helper on a host that was not connected when it began; return False if there is none."""
        helper = self._helpers.join(host)
        if helper is None:
            return False
        try:
            plan = with_secrets(self._plan, os.environ)
        except EngineError as error:
            self.end_part(self._helpers.refuse(helper, host, error.message))
        else:
            self._tasks.begin(self._work(plan, helper, host))
        return True

    def end_part(self, ended: PartEnded | None) -> None:
        """Handle the end of a helper on one host: stop the others, or continue with a host that connected late."""
        if ended is None:
            return
        self._send_orders(ended.to_stop)
        if not ended.is_late:
            return
        is_lost = ended.exit.reason == HOST_LOST  # then no further helper is started there now
        if is_lost or not self.join(ended.host):
            has_failed = not (ended.exit.ok or is_lost)
            warning = f"{ended.host} cannot be used: {describe_exit(ended.exit)}" if has_failed else ""
            self._inbox.put_nowait(Prepared(ended.host, warning))

    def _send_orders(self, hosts: Iterable[str]) -> None:
        for host in hosts:
            self._orders.send(host)

    async def _find_hosts(self, plan: Plan, helper: Incarnation) -> None:
        """Begin a helper on the hosts that answer; it ends at once if none does."""
        try:
            hosts = await find_answering(self._connections, hosts_of(plan).lost_seconds)
        except EngineError as error:
            if helper in self._awaiting_hosts:  # else it was stopped before it started
                self._awaiting_hosts.discard(helper)
                self._helpers.fail(helper, error.message)
            return
        if helper in self._awaiting_hosts:
            self._awaiting_hosts.discard(helper)
            self._begin(plan, helper, [host for host in hosts if not self._helpers.unready(host)])  # others join later

    def _begin(self, plan: Plan, helper: Incarnation, hosts: Sequence[str]) -> None:
        for host in self._helpers.begin(helper, hosts):
            self._tasks.begin(self._work(plan, helper, host))

    async def _work(self, plan: Plan, helper: Incarnation, host: str) -> None:
        """Send a host the project, then order it to start the helper."""
        connection = self._connections[host]
        is_wanted = partial(self._helpers.waits, helper, host)
        try:
            await deliver_when_connected(connection, partial(self._sync.deliver, host), is_wanted)
        except DrumlineError as error:
            self.end_part(self._helpers.refuse(helper, host, error.message))
            return
        if not is_wanted():
            return
        has_begun_everywhere = self._helpers.go(
            helper, host, plan_to_json(host_plan(plan, connection.facts.base if connection.facts else ""))
        )
        self._orders.send(host)
        if has_begun_everywhere and (carried := self._sync.carried()):
            self._report(carried)


async def find_answering(connections: Mapping[str, HostConnection], seconds: float) -> list[str]:
    """Return the hosts that answer within this time; raise EngineError if none does.

    A host that cannot be reached is not waited for once others have answered.
    """
    began = now()
    connecting = {
        asyncio.ensure_future(connection.wait_connected(min(CONNECT_SECONDS, seconds))): connection
        for connection in connections.values()
    }
    waiting = set(connecting)
    try:
        while waiting:
            _, waiting = await asyncio.wait(waiting, timeout=_PAUSE_SECONDS)
            are_hindered = all(connecting[each].is_hindered for each in waiting)
            if (
                are_hindered
                and now() - began >= _HINDERED_SECONDS
                and any(connection.is_up for connection in connections.values())
            ):
                break
    finally:
        for each in waiting:
            each.cancel()
    if up := [name for name, connection in connections.items() if connection.is_up]:
        return up
    name, first = next(iter(connections.items()))
    raise first.trouble or EngineError(f"{name} does not answer")
