"""Abilities of engines and sessions beside running replicas: one protocol with one method for each.

An engine or a session has an ability if it has the method; there are no methods that do nothing. Callers check with
`isinstance`, or with `require` if the user has requested the ability. Abilities about running replicas belong to the
session: Preparing, Serving, Measurable, Observable, Connected and Dumpable. All others belong to the engine.
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
    """Return the engine as a type with this ability; raise EngineError, which names `what`, if not."""
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
    """Can compare the resources that a plan requests with all that exist, before a run."""

    def capacity_problems(self, plan: Plan) -> Iterator[str]:
        """Yield a message for each resource of which the plan requests more than exists."""
        ...


@runtime_checkable
class Preparing(Protocol):
    """Can build environments and images and make data before replicas start."""

    async def prepare(self, plan: Plan, helper: ReplicaId, *, incarnation: int = 0) -> None:
        """Start this helper, unless it was started before.

        The helper is reported as a replica of attempt 0. If it has nothing to do, only its end is reported, with a
        message.
        """
        ...


@runtime_checkable
class Serving(Protocol):
    """Can run TensorBoard beside a run with its output in a folder of this machine."""

    async def serve(self, plan: Plan, *, incarnation: int = 0) -> None:
        """Start TensorBoard over the run's output, unless it was started before; raise EngineError if that fails.

        TensorBoard is reported as a replica of attempt 0, and its address is reported once it answers.
        """
        ...


@runtime_checkable
class Measurable(Protocol):
    """Can measure the usage of replicas: CPU, memory, GPUs."""

    async def usage(self, *, watched: bool) -> Sequence[Usage]:
        """Return the usage of every running incarnation, and the total of each that has ended since the last call.

        Unless the run is `watched`, this must be cheap.
        """
        ...


@runtime_checkable
class Observable(Protocol):
    """Can measure the work of replicas, from which the supervisor finds whether they are idle."""

    async def work_samples(self) -> Sequence[WorkSample]:
        """Return the work of every running incarnation so far."""
        ...


@runtime_checkable
class Connected(Protocol):
    """Can list the connections of replicas."""

    async def sockets(self) -> Sequence[Sockets]:
        """Return the ports on which each running incarnation listens, and the addresses of its connections."""
        ...


@runtime_checkable
class Dumpable(Protocol):
    """Can save the stacks of replicas."""

    async def stacks(self, incarnations: Sequence[Incarnation], *, gently: bool) -> None:
        """Save the stacks of these incarnations beside their traces; return when that is done or has failed.

        With `gently`, only replicas that can be dumped without disturbing them are dumped. Otherwise a replica may end
        by it.
        """
        ...


class FaultInjector(Protocol):
    """Injects faults into replicas from outside, without the knowledge of the supervisor."""

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
        """Return the fault injector, which needs no session."""
        ...


@runtime_checkable
class Diagnosable(Protocol):
    """Can check the machines on which it runs replicas."""

    def diagnose(self, target: DoctorTarget) -> Iterable[DoctorCheck]:
        """Yield the checks, one for each requirement."""
        ...


@runtime_checkable
class Warming(Protocol):
    """Can fork replicas from warm processes, which have imported the framework already."""

    def warm_pool(self) -> WarmPool:
        """Return access to the warm processes."""
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
        """Remove the run's files on other machines; raise EngineError that names all files that remain."""
        ...


@runtime_checkable
class Retaining(Protocol):
    """Can describe the files that remain when a run is removed."""

    def remains(self, run_output: RunOutput) -> Iterator[str]:
        """Yield a description of each file or folder that remains; contact no other machine."""
        ...


@runtime_checkable
class Verifying(Protocol):
    """May be unable to verify at the end of a run that no process of it remains on a machine."""

    def unverified_hosts(self, run_output: RunOutput) -> Sequence[UnverifiedHost]:
        """Return the hosts that did not answer at the end of the run, so that processes of it may remain there."""
        ...


@runtime_checkable
class Removing(Protocol):
    """Removes the objects of a run after its end, which may take a while."""

    def removal_seconds(self) -> float:
        """Return the seconds that a command that followed the run waits for the removal."""
        ...


class EndedError(EngineError):
    """A supervisor on another machine has ended, and its run can no longer be read there."""


class RemoteSupervisor(Protocol):
    """A run's folder on another machine, and its supervisor there.

    Both methods transport bytes between this machine and `python -m drumline.supervise.remote` there. They raise
    EngineError if the machine cannot be reached, whatever the state of the run, and EndedError if the run no longer
    exists there. An answer has MOST_ANSWER_BYTES at most.
    """

    async def start(self, order: bytes) -> bytes:
        """Run `remote start FOLDER` with the order, which may contain secrets, on its stdin; return its output.

        FOLDER is `runs/ID` in the drumline folder there, to which DRUMLINE_HOME is set; an order may be sent twice.
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
        """Return access to the supervisor on another machine; None if the supervisor of this plan runs here."""
        ...


@runtime_checkable
class Browsable(Protocol):
    """Can show and copy the output of a run."""

    def open_output(self, run_output: RunOutput) -> Output:
        """Return access to the output of a run."""
        ...
