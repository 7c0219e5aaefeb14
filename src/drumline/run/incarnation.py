"""One execution of a replica within an attempt."""

from __future__ import annotations

from typing import Protocol, Self

from drumline.plan.types import ReplicaId
from drumline.record import Record
from drumline.run.traces import trace_dir


class Named(Protocol):
    """An event or a measurement with the fields `replica`, `attempt` and `incarnation`."""

    @property
    def replica(self) -> ReplicaId:
        """The replica."""
        ...

    @property
    def attempt(self) -> int:
        """The attempt of the run."""
        ...

    @property
    def incarnation(self) -> int:
        """The number of the incarnation within the attempt."""
        ...


class Incarnation(Record):
    """One execution of a replica within an attempt."""

    replica: ReplicaId
    attempt: int
    incarnation: int = 0

    @classmethod
    def of(cls, named: Named) -> Self:
        """Return the incarnation that an event or a measurement is about."""
        return cls(named.replica, named.attempt, named.incarnation)

    @property
    def folder(self) -> str:
        """Return the folder of its log and traces, relative to the run's folder."""
        return trace_dir(self.replica, self.attempt, self.incarnation)
