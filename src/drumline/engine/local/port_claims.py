"""The port claims of one run: its keepers inherit them, so a claim ends with its replica."""

from __future__ import annotations

from drumline.engine.ports import PortClaim, claim_port
from drumline.plan.types import Launch, ReplicaId


class PortClaims:
    """The claims of one run: those of a placement until its replicas start, then those of replicas that may restart."""

    def __init__(self) -> None:
        self._placed: dict[ReplicaId, PortClaim] = {}
        self._kept: dict[ReplicaId, PortClaim] = {}

    def replace(self, claims: dict[ReplicaId, PortClaim]) -> None:
        """Hold the claims of a new placement instead of those of the last one."""
        self.release()
        self._placed = claims

    def descriptors(self, launch: Launch) -> tuple[int, ...]:
        """Return the descriptors that a replica's keeper inherits to keep its port; a restarted replica keeps its port.

        A claim that ended with an earlier supervisor is made again if the port is still free.
        """
        replica = launch.replica
        claim = self._placed.get(replica.id) or (self._kept.get(replica.id) if launch.incarnation else None)
        if claim is None and launch.incarnation and replica.port is None:
            claim = claim_port(launch.place.port)
            if claim:
                self._kept[replica.id] = claim
        return claim.descriptors if claim else ()

    def keep(self) -> None:
        """Keep the claims of the placement after its replicas have started."""
        self._kept |= self._placed
        self._placed = {}

    def close(self) -> None:
        """Release the claims that no start used; replicas that were started keep theirs."""
        for claim in self._placed.values():
            claim.close()
        self._placed = {}

    def release(self) -> None:
        """Release all claims."""
        self.close()
        for claim in self._kept.values():
            claim.close()
        self._kept = {}
