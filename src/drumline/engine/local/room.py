"""The room that a run has on this machine: claimed, waited for, divided."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING

from drumline.engine.local.capacity import find_capacity, find_gpus
from drumline.engine.protocol import Capacity, MustWait, Site, Tell
from drumline.errors import EngineError
from drumline.plan.types import Plan
from drumline.record import to_dict
from drumline.run.event import AttemptDelayed, EngineFailed, RoomFound

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from drumline.engine.local.ledger import Ledger
    from drumline.engine.local.share import Division


class Room:
    """What one run may use of this machine; owns its claim.

    Most lines ask for nothing, on a machine without GPUs: these wait for no module that they have no use for.
    """

    def __init__(self, site: Site, environ: Mapping[str, str], *, boot: Callable[[], str]) -> None:
        self._site = site
        self._environ = environ
        self._boot = boot
        self._ledger: Ledger | None = None
        self._watching: tuple[AbstractEventLoop, Tell] | None = None

    def watch(self, loop: AbstractEventLoop, tell: Tell) -> None:
        """Tell from now on when a line that has to wait need not any more; comes before `take`."""
        self._watching = loop, tell

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What every keeper of the run must hold."""
        return self._ledger.descriptors if self._ledger else ()

    def shortages(self, plan: Plan) -> Iterator[str]:
        """What the line asks for beyond all that there is."""
        if claims(plan):
            from drumline.engine.local.turn import describe_shortages  # noqa: PLC0415

            yield from describe_shortages(plan, self._capacity)

    def look(self, plan: Plan) -> Division | None:
        """The GPUs that everybody would see if the line began now; if it had to wait, on a machine of its own.

        None if there is nothing to say about GPUs.
        """
        if not self._gpus:
            return self._divide(plan) if any(each.resources.gpus is not None for each in plan.replicas) else None
        from drumline.engine.local.turn import choose_gpus, held_gpus, must_wait, total  # noqa: PLC0415

        claim = total(plan)
        others = [entry for run, entry in self._open(plan).look().items() if run != plan.run]
        if claim.gpus and must_wait(plan.run, claim, others, self._capacity):
            others = []
        own = choose_gpus(claim, others, self._capacity) if claim.gpus else ()
        return self._divide(plan, own, held_gpus(others))

    def take(self, plan: Plan, attempt: int, *, all_begun: bool) -> Division | None:
        """Claim what the line asks for; raise MustWait if others have it, and tell when it is to be had.

        A line of which everybody has begun is only looked after, and needs no more than its keepers still hold.
        """
        if not claims(plan):
            return self.look(plan)
        from drumline.engine.local.turn import total  # noqa: PLC0415

        ledger = self._ledger = self._open(plan)
        if all_begun and not ledger.is_held():
            return None
        if not plan.oversubscribe:
            for shortage in self.shortages(plan):
                raise EngineError(shortage)
        claim = partial(ledger.claim, total(plan), self._capacity, insist=plan.oversubscribe)
        if message := claim():
            self._wait(ledger, claim, attempt, message)
            raise MustWait(message)
        own = ledger.entry.gpus if ledger.entry else ()
        return self._divide(plan, own, ledger.taken)

    def _wait(self, ledger: Ledger, claim: Callable[[], str], attempt: int, message: str) -> None:
        """Ask again whenever somebody who is in our way has gone or begun; by then we have it, or wait anew."""
        if self._watching is None:
            raise AssertionError("a room is watched before it is taken")
        loop, tell = self._watching

        def ask_again() -> None:
            try:
                now = claim()
            except EngineError as error:
                tell(EngineFailed(attempt, error.message))
                return
            if not now:
                tell(RoomFound(attempt))
                return
            if now != message:
                tell(AttemptDelayed(attempt, now))
            self._wait(ledger, claim, attempt, now)

        ledger.watch(loop, ask_again)

    @property
    def cpus(self) -> float:
        """How many CPUs a run may use: those of its affinity, or less where a control group allows less."""
        return self._capacity.cpus

    def release(self) -> None:
        """Give everything back."""
        if self._ledger:
            self._ledger.release()

    @cached_property
    def _gpus(self) -> tuple[str, ...]:
        return self._site.capacity.gpus if self._site.capacity else find_gpus(self._environ)

    @cached_property
    def _capacity(self) -> Capacity:
        return self._site.capacity or find_capacity(self._site.cores, self._environ)

    def _open(self, plan: Plan) -> Ledger:
        from drumline.engine.local.ledger import Ledger  # noqa: PLC0415

        return self._ledger or Ledger(self._site.home, boot=self._boot(), run=plan.run)

    def _divide(self, plan: Plan, own: Sequence[str] = (), taken: Collection[str] = ()) -> Division:
        from drumline.engine.local.share import divide  # noqa: PLC0415

        return divide(plan, self._gpus, own, taken)


def claims(plan: Plan) -> bool:
    """Whether anybody in the line claims anything."""
    return any(any(to_dict(replica.resources).values()) for replica in plan.replicas)
