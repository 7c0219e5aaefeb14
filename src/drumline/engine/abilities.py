"""Abilities of engines and sessions beside running replicas: one protocol with one method for each.

An engine or a session has an ability if it has the method; there are no methods that do nothing. Callers ask with
`isinstance`, or with `require` where the user asked for it. Abilities about running replicas belong to the session:
Preparing, Serving, Measurable, Observable, Connected and Dumpable. All others belong to the engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

from drumline.errors import EngineError
from drumline.plan.types import Plan, ReplicaId

if TYPE_CHECKING:
    from drumline.engine.doctor_checks import DoctorCheck, DoctorTarget
    from drumline.engine.output import Output, RunOutput, Volumes
    from drumline.engine.warm import WarmPool
    from drumline.run.drill import Fault
    from drumline.run.idle import WorkSample
    from drumline.run.incarnation import Incarnation
    from drumline.run.rendezvous import Sockets
    from drumline.run.unverified import UnverifiedHost
    from drumline.run.usage import Usage


Ability = TypeVar("Ability")


def require(engine: object, ability: type[Ability], what: str, name: str) -> Ability:
    """Return the engine of this name as one that has the ability; raise EngineError, with `what`, if it has not."""
    if not isinstance(engine, ability):
        raise EngineError(f"{what} is not supported on {name}")
    return engine


@runtime_checkable
class Reachable(Protocol):
    """Runs replicas on other machines, which have to be contacted first."""

    async def reach(self, plan: Plan) -> tuple[Plan, Sequence[str]]:
        """Check that the machines answer and allow the run; raise EngineError if not. Return the plan and warnings.

        The returned plan names the machines, so that a later supervisor uses the same ones.
        """
        ...


@runtime_checkable
class Limited(Protocol):
    """Knows all its resources before a run."""

    def capacity_problems(self, plan: Plan) -> Iterator[str]:
        """Yield a message for each resource of which the plan asks for more than exists."""
        ...


@runtime_checkable
class Preparing(Protocol):
    """Can build environments and images and make data before replicas start."""

    async def prepare(self, plan: Plan, helper: ReplicaId, *, incarnation: int = 0) -> None:
        """Start this helper, unless it was started before.

        It is reported as a replica of attempt 0. For a helper with nothing to do only the end is reported, with its
        message.
        """
        ...


@runtime_checkable
class Serving(Protocol):
    """Can run TensorBoard beside a run; the run's output is a folder of this machine."""

    async def serve(self, plan: Plan, *, incarnation: int = 0) -> None:
        """Start TensorBoard over the run's output, unless it was started before; raise EngineError if that fails.

        It is reported as a replica of attempt 0, and its address once it answers.
        """
        ...


@runtime_checkable
class Measurable(Protocol):
    """Can measure what replicas use."""

    async def usage(self, *, watched: bool) -> Sequence[Usage]:
        """Return the usage of every incarnation that runs, and the last one of each that has ended since the last call.

        Unless the run is `watched`, this must be cheap.
        """
        ...


@runtime_checkable
class Observable(Protocol):
    """Can measure whether replicas do anything."""

    async def work_samples(self) -> Sequence[WorkSample]:
        """Return the work of every running incarnation so far."""
        ...


@runtime_checkable
class Connected(Protocol):
    """Can list the connections of replicas."""

    async def sockets(self) -> Sequence[Sockets]:
        """Return the ports on which every incarnation that runs listens, and the addresses it has connected to."""
        ...


@runtime_checkable
class Dumpable(Protocol):
    """Can save the stacks of replicas."""

    async def stacks(self, incarnations: Sequence[Incarnation], *, gently: bool) -> None:
        """Save the stacks of these beside their traces; return when that is done or has failed.

        With `gently` replicas are not disturbed: those that cannot be dumped without that are left out. Otherwise they
        may end.
        """
        ...


class FaultInjector(Protocol):
    """Injects faults into replicas from outside; the supervisor is not told."""

    def find_problem(self, plan: Plan, fault: Fault) -> str | None:
        """Return why this fault cannot be injected into replicas of this plan; None if it can."""
        ...

    def inject(self, traces: Path, replica: ReplicaId, fault: Fault) -> None:
        """Inject a fault into the incarnation with these traces; raise EngineError if it does not run."""
        ...

    def undo(self, traces: Path, replica: ReplicaId, fault: Fault) -> None:
        """Undo the fault, as far as that is possible and the replica still runs."""
        ...


@runtime_checkable
class Sabotable(Protocol):
    """Can inject faults into replicas for a drill."""

    def fault_injector(self) -> FaultInjector:
        """Return the fault injector; needs no session."""
        ...


@runtime_checkable
class Diagnosable(Protocol):
    """Can check the machines on which it runs replicas."""

    def diagnose(self, target: DoctorTarget) -> Iterable[DoctorCheck]:
        """Yield the checks, one for each requirement."""
        ...


@runtime_checkable
class Warming(Protocol):
    """Can fork replicas from processes that have imported the framework already."""

    def warm_pool(self) -> WarmPool:
        """Return access to these processes."""
        ...


@runtime_checkable
class Describing(Protocol):
    """Has runs that write their output on other machines."""

    def describe_output(self, run_output: RunOutput) -> str:
        """Return a description of where the output is and how to fetch it; contact no other machine."""
        ...


@runtime_checkable
class Storing(Protocol):
    """Creates volumes that stay when a run is removed."""

    def open_volumes(self, run_output: RunOutput) -> Volumes:
        """Return access to the volumes that were made for a run."""
        ...


@runtime_checkable
class RemovingFiles(Protocol):
    """Has files of runs on other machines, which are removed with the run."""

    def remove_files(self, run_output: RunOutput) -> None:
        """Remove the run's files there; raise EngineError with all that could not be removed."""
        ...


@runtime_checkable
class Retaining(Protocol):
    """Knows what remains on other machines when a run is removed."""

    def remains(self, run_output: RunOutput) -> Iterator[str]:
        """Yield descriptions of what remains; contact no other machine."""
        ...


@runtime_checkable
class Verifying(Protocol):
    """May be unable to verify at the end of a run that no process of it remains on a machine."""

    def unverified_hosts(self, run_output: RunOutput) -> Sequence[UnverifiedHost]:
        """Return the hosts on which processes of the run, which is over, may remain since they did not answer."""
        ...


@runtime_checkable
class Removing(Protocol):
    """Removes the objects of a run after its end, which may take a while."""

    def removal_seconds(self) -> float:
        """Return how long a command that followed the run waits for the removal."""
        ...


class EndedError(EngineError):
    """A supervisor on another machine has ended, and its run can no longer be read there."""


class RemoteSupervisor(Protocol):
    """A run's folder on another machine, and its supervisor there.

    Both methods transport bytes between this machine and `python -m drumline.supervise.remote` there.
    Raise EngineError if the machine cannot be reached, which says nothing about the run, and EndedError if the run is
    known to be gone there. An answer has MOST_ANSWER_BYTES at most.
    """

    async def start(self, order: bytes) -> bytes:
        """Run `remote start FOLDER` with the order, which may contain secrets, on its stdin; return its output.

        FOLDER is `runs/ID` in the drumline folder there, to which DRUMLINE_HOME is set; an order may be given twice.
        """
        ...

    async def exchange(self, request: bytes) -> bytes:
        """Run `remote answer FOLDER` with the request on its stdin; return its output."""
        ...


MOST_ANSWER_BYTES = 1 << 24


@runtime_checkable
class Remote(Protocol):
    """Can run the supervisor of a run where the replicas run."""

    def remote_supervisor(self, run_output: RunOutput) -> RemoteSupervisor | None:
        """Return access to a supervisor on another machine; None if it runs on this machine for this plan."""
        ...


@runtime_checkable
class Browsable(Protocol):
    """Can show and copy what a run has written."""

    def open_output(self, run_output: RunOutput) -> Output:
        """Return access to what a run has written."""
        ...
