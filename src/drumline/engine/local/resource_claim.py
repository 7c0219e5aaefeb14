"""The room that a run has on this machine: claimed, waited for, divided."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING

from drumline.engine.local.capacity import find_capacity, find_gpus
from drumline.engine.protocol import Capacity, MustWait, ReportEvent, Site
from drumline.errors import EngineError
from drumline.plan.types import Plan
from drumline.record import to_dict
from drumline.run.event import AttemptDelayed, EngineFailed, RoomFound

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from drumline.engine.local.claim_registry import ClaimRegistry
    from drumline.engine.local.gpu_assignment import GpuAssignment


class ResourceClaim:
    """What one run may use of this machine; owns its claim.

    Most lines ask for nothing, on a machine without GPUs: these wait for no module that they have no use for.
    """

    def __init__(self, site: Site, environ: Mapping[str, str], *, boot: Callable[[], str]) -> None:
        self._site = site
        self._environ = environ
        self._boot = boot
        self._registry: ClaimRegistry | None = None
        self._watching: tuple[AbstractEventLoop, ReportEvent] | None = None

    def watch(self, loop: AbstractEventLoop, tell: ReportEvent) -> None:
        """Tell from now on when a line that has to wait need not any more; comes before `take`."""
        self._watching = loop, tell

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What every keeper of the run must hold."""
        return self._registry.descriptors if self._registry else ()

    def excess(self, plan: Plan) -> Iterator[str]:
        """What the line asks for beyond all that there is."""
        if claims(plan):
            from drumline.engine.local.claim_queue import describe_excess  # noqa: PLC0415

            yield from describe_excess(plan, self._capacity)

    def preview_gpus(self, plan: Plan) -> GpuAssignment | None:
        """The GPUs that everybody would see if the line began now; if it had to wait, on a machine of its own.

        None if there is nothing to say about GPUs.
        """
        if not self._gpus:
            return self._assign_gpus(plan) if any(each.resources.gpus is not None for each in plan.replicas) else None
        from drumline.engine.local.claim_queue import choose_gpus, held_gpus, total_claim, waiting_reason  # noqa: PLC0415

        claim = total_claim(plan)
        others = [entry for run, entry in self._open(plan).entries().items() if run != plan.run]
        if claim.gpus and waiting_reason(plan.run, claim, others, self._capacity):
            others = []
        own = choose_gpus(claim, others, self._capacity) if claim.gpus else ()
        return self._assign_gpus(plan, own, held_gpus(others))

    def claim(self, plan: Plan, attempt: int, *, all_begun: bool) -> GpuAssignment | None:
        """Claim what the line asks for; raise MustWait if others have it, and tell when it is to be had.

        A line of which everybody has begun is only looked after, and needs no more than its keepers still hold.
        """
        if not claims(plan):
            return self.preview_gpus(plan)
        from drumline.engine.local.claim_queue import total_claim  # noqa: PLC0415

        registry = self._registry = self._open(plan)
        if all_begun and not registry.is_held():
            return None
        if not plan.oversubscribe:
            for shortage in self.excess(plan):
                raise EngineError(shortage)
        claim = partial(registry.claim, total_claim(plan), self._capacity, insist=plan.oversubscribe)
        if message := claim():
            self._wait(registry, claim, attempt, message)
            raise MustWait(message)
        own = registry.entry.gpus if registry.entry else ()
        return self._assign_gpus(plan, own, registry.taken)

    def _wait(self, registry: ClaimRegistry, claim: Callable[[], str], attempt: int, message: str) -> None:
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
            self._wait(registry, claim, attempt, now)

        registry.watch(loop, ask_again)

    @property
    def cpus(self) -> float:
        """How many CPUs a run may use: those of its affinity, or less where a control group allows less."""
        return self._capacity.cpus

    def release(self) -> None:
        """Give everything back."""
        if self._registry:
            self._registry.release()

    @cached_property
    def _gpus(self) -> tuple[str, ...]:
        return self._site.capacity.gpus if self._site.capacity else find_gpus(self._environ)

    @cached_property
    def _capacity(self) -> Capacity:
        return self._site.capacity or find_capacity(self._site.cores, self._environ)

    def _open(self, plan: Plan) -> ClaimRegistry:
        from drumline.engine.local.claim_registry import ClaimRegistry  # noqa: PLC0415

        return self._registry or ClaimRegistry(self._site.home, boot=self._boot(), run=plan.run)

    def _assign_gpus(self, plan: Plan, own: Sequence[str] = (), taken: Collection[str] = ()) -> GpuAssignment:
        from drumline.engine.local.gpu_assignment import assign_gpus  # noqa: PLC0415

        return assign_gpus(plan, self._gpus, own, taken)


def claims(plan: Plan) -> bool:
    """Whether anybody in the line claims anything."""
    return any(any(to_dict(replica.resources).values()) for replica in plan.replicas)
