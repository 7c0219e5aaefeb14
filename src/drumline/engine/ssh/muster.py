"""Has helpers work on every host that answers, and later on those that were away meanwhile and have come."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from drumline.engine.incarnation import Incarnation
from drumline.engine.protocol import Tell
from drumline.engine.ssh.errands import Errands
from drumline.engine.ssh.helpers import Helpers, filled
from drumline.engine.ssh.link import Link
from drumline.engine.ssh.luggage import Luggage
from drumline.engine.ssh.place import part
from drumline.engine.ssh.planned import hosts_of
from drumline.engine.ssh.replicas import HOST_LOST
from drumline.engine.tasks import Tasks
from drumline.errors import EngineError
from drumline.plan.codec import plan_to_json
from drumline.plan.types import Plan
from drumline.record import Record
from drumline.run.event import Exit
from drumline.run.failure import describe_exit


class Calls(Record):
    """What is called when something has come of it."""

    tell: Tell
    warn: Callable[[str], None]
    wake: Callable[[str], None]  # have a line placed that waits for this host
    look: Callable[[], None]  # look out for hosts on which somebody works


class Muster:
    """Calls hosts together for the helpers of a run."""

    def __init__(
        self,
        plan: Plan,
        links: Mapping[str, Link],
        helpers: Helpers,
        goods: tuple[Luggage, Errands],
        tasks: Tasks,
        calls: Calls,
    ) -> None:
        self._plan = plan
        self._links = links
        self._helpers = helpers
        self._luggage, self._errands = goods
        self._tasks = tasks
        self._calls = calls
        self._calling: set[Incarnation] = set()  # helpers for which it is not known yet who answers
        helpers.joined = self._joined

    def prepare(self, plan: Plan, life: Incarnation) -> None:
        """Have a helper on every host that answers within a while, which nobody waits for here; told of as one."""
        plan = filled(plan, os.environ)
        if self._helpers.knows(life):
            self._begin(plan, life, ())
        elif life not in self._calling:
            self._calling.add(life)
            found, failed = partial(self._answered, plan, life), partial(self._failed, life)
            self._tasks.begin(self._errands.assemble(hosts_of(plan).lost_seconds, found, failed))

    def stop(self, life: Incarnation, grace_seconds: float) -> None:
        """Stop a helper wherever it is, or was about to be."""
        self._calling.discard(life)
        self._helpers.stop(life, grace_seconds)

    def join(self, host: str) -> bool:
        """Have a host that has come do what it was away for, one after the other; whether there is something."""
        life = self._helpers.join(host)
        if life is None:
            return False
        try:
            self._work(filled(self._plan, os.environ), life, host)
        except EngineError as error:
            self._helpers.refuse(life, host, error.message)
        return True

    def _answered(self, plan: Plan, life: Incarnation, hosts: Sequence[str]) -> None:
        if life in self._calling:  # else it was stopped before it began
            self._calling.discard(life)
            self._begin(plan, life, [host for host in hosts if not self._helpers.unready(host)])  # the others join

    def _failed(self, life: Incarnation, message: str) -> None:
        if life in self._calling:
            self._calling.discard(life)
            self._helpers.fail(life, message)

    def _begin(self, plan: Plan, life: Incarnation, hosts: Sequence[str]) -> None:
        for host in self._helpers.begin(life, hosts):
            self._work(plan, life, host)

    def _work(self, plan: Plan, life: Incarnation, host: str) -> None:
        """Bring a host what a helper needs there, and have it begin."""
        errand = self._errands.supply(
            host,
            partial(self._luggage.deliver, host),
            while_=partial(self._helpers.waits, life, host),
            refused=partial(self._helpers.refuse, life, host),
            done=partial(self._go, plan, life, host),
        )
        self._tasks.begin(errand)
        self._calls.look()

    def _go(self, plan: Plan, life: Incarnation, host: str) -> None:
        facts = self._links[host].facts
        own = plan_to_json(part(plan, facts.base if facts else ""))
        are_all_there = self._helpers.waits(life, host) and self._helpers.go(life, host, own)
        if are_all_there and (carried := self._luggage.carried()):
            self._calls.tell(carried)

    def _joined(self, host: str, exit_: Exit) -> None:
        """One that came late has done something, has failed, or is gone again."""
        if exit_.reason == HOST_LOST:
            self._calls.wake(host)  # it is not waited for
            return
        if not exit_.ok:
            self._calls.warn(f"{host} cannot be used: {describe_exit(exit_)}")
        if not self.join(host):
            self._calls.wake(host)
