"""The CPUs, memory and GPUs that one run claims on this machine."""

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
    """Claims resources for one run, or queues for them; owns the claim.

    Modules for claims are imported when they are needed: most runs ask for nothing.
    """

    def __init__(self, site: Site, environ: Mapping[str, str], *, boot: Callable[[], str]) -> None:
        self._site = site
        self._environ = environ
        self._boot = boot
        self._registry: ClaimRegistry | None = None
        self._watching: tuple[AbstractEventLoop, ReportEvent] | None = None

    def watch(self, loop: AbstractEventLoop, report: ReportEvent) -> None:
        """Report when a run that waits gets its resources; call this before `claim`."""
        self._watching = loop, report

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Return what every keeper of the run holds to keep the claim."""
        return self._registry.descriptors if self._registry else ()

    def excess(self, plan: Plan) -> Iterator[str]:
        """Yield a message for each resource of which the plan asks for more than the machine has."""
        if claims_any(plan):
            from drumline.engine.local.claim_queue import describe_excess  # noqa: PLC0415

            yield from describe_excess(plan, self._capacity)

    def preview_gpus(self, plan: Plan) -> GpuAssignment | None:
        """Return the GPUs that each replica would see if the run began now; if it had to wait, without other runs.

        None if neither the machine nor the plan has GPUs.
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
        """Claim what the plan asks for; raise MustWait if other runs hold it, and report when it is free.

        If all replicas have begun, nothing new is claimed: their keepers hold what they use.
        """
        if not claims_any(plan):
            return self.preview_gpus(plan)
        from drumline.engine.local.claim_queue import total_claim  # noqa: PLC0415

        registry = self._registry = self._open(plan)
        if all_begun and not registry.is_held():
            return None
        if not plan.oversubscribe:
            for message in self.excess(plan):
                raise EngineError(message)
        claim = partial(registry.claim, total_claim(plan), self._capacity, insist=plan.oversubscribe)
        if message := claim():
            self._wait(registry, claim, attempt, message)
            raise MustWait(message)
        own = registry.entry.gpus if registry.entry else ()
        return self._assign_gpus(plan, own, registry.taken)

    def _wait(self, registry: ClaimRegistry, claim: Callable[[], str], attempt: int, message: str) -> None:
        """Claim again whenever an entry that delays this run has ended or begun; wait again if that fails."""
        if self._watching is None:
            raise AssertionError("`watch` comes before `claim`")
        loop, report = self._watching

        def claim_again() -> None:
            try:
                now = claim()
            except EngineError as error:
                report(EngineFailed(attempt, error.message))
                return
            if not now:
                report(RoomFound(attempt))
                return
            if now != message:
                report(AttemptDelayed(attempt, now))
            self._wait(registry, claim, attempt, now)

        registry.watch(loop, claim_again)

    @property
    def cpus(self) -> float:
        """Return how many CPUs a run may use: those of its affinity, or the quota of its cgroup if that is less."""
        return self._capacity.cpus

    def release(self) -> None:
        """Release the claim."""
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


def claims_any(plan: Plan) -> bool:
    """Return whether any replica of the plan asks for resources."""
    return any(any(to_dict(replica.resources).values()) for replica in plan.replicas)
