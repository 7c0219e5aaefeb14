"""The ports of one run, claimed: its keepers inherit the claims, which so end with them."""

from __future__ import annotations

from drumline.engine.ports import PortClaim, claim_port
from drumline.plan.types import Launch, ReplicaId


class PortClaims:
    """The claims of one run: those of a placement until its line is started, and after that of who may return."""

    def __init__(self) -> None:
        self._placed: dict[ReplicaId, PortClaim] = {}
        self._kept: dict[ReplicaId, PortClaim] = {}

    def take(self, claims: dict[ReplicaId, PortClaim]) -> None:
        """Hold the claims of a new placement; those of the one before are not needed any more."""
        self.release()
        self._placed = claims

    def descriptors(self, launch: Launch) -> tuple[int, ...]:
        """What a replica's keeper must hold to keep its port; who returns gets the port that it had.

        One whose claim died with an earlier supervisor is claimed again, if nobody else was quicker.
        """
        replica = launch.replica
        claim = self._placed.get(replica.id) or (self._kept.get(replica.id) if launch.incarnation else None)
        if claim is None and launch.incarnation and replica.port is None:
            claim = claim_port(launch.place.port)
            if claim:
                self._kept[replica.id] = claim
        return claim.descriptors if claim else ()

    def keep(self) -> None:
        """Hold the claims of the placement on when its line is started."""
        self._kept |= self._placed
        self._placed = {}

    def close(self) -> None:
        """Let go of what no start took over; whoever was started keeps its own."""
        for claim in self._placed.values():
            claim.close()
        self._placed = {}

    def release(self) -> None:
        """Let go of everything."""
        self.close()
        for claim in self._kept.values():
            claim.close()
        self._kept = {}
