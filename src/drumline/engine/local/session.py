"""One run as processes of this machine."""

from __future__ import annotations

import asyncio
import resource
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from drumline.engine.argument_limits import too_long_arguments
from drumline.engine.events import EventQueue
from drumline.engine.interpreter import require_interpreter
from drumline.engine.local.environment import complete_environment
from drumline.engine.local.interpreters import Interpreters
from drumline.engine.local.place import place, place_helper
from drumline.engine.local.planned import local_plan
from drumline.engine.local.port_claims import PortClaims
from drumline.engine.local.processes import Processes
from drumline.engine.local.resource_claim import ResourceClaim
from drumline.engine.protocol import Placed, Site
from drumline.errors import EngineError
from drumline.plan.bind import bind_preparations, reserved
from drumline.plan.name import variable_name
from drumline.plan.types import Launch, LaunchValue, Plan, Replica, ReplicaId, Resources, Secret
from drumline.run.event import Event, Exit, ReplicaExited
from drumline.run.incarnation import Incarnation
from drumline.runtime import prepare
from drumline.runtime.keeper import boot_id
from drumline.runtime.order import NextSupervisor
from drumline.runtime.private import make_folder

if TYPE_CHECKING:
    from drumline.engine.local.network import Network
    from drumline.engine.local.usage import UsageSampler
    from drumline.engine.local.warm.client import WarmProcesses
    from drumline.run.idle import WorkSample
    from drumline.run.rendezvous import Sockets
    from drumline.run.usage import Usage


class LocalSession:
    """Starts, stops and measures the replicas of one run; owns its claims."""

    def __init__(
        self, run_dir: Path, site: Site, environ: Mapping[str, str], lease: tuple[str, float] | None = None
    ) -> None:
        self._run_dir = run_dir
        self._site = site
        self._environ = environ
        self._events = EventQueue()
        self._loop, self._report = asyncio.get_running_loop(), self._events.put
        self._ports = PortClaims()
        self._resources = ResourceClaim(site, environ, boot=boot_id)
        self._resources.watch(self._loop, self._report)
        self._pythons = Interpreters(site, environ, copies=True)
        self._plan: Plan | None = None  # as last placed
        self._warm: WarmProcesses | None = None
        self._usage_sampler: UsageSampler | None = None
        # The supervisor needs descriptors for every replica; replicas get the user's own limit.
        limits, command = resource.getrlimit(resource.RLIMIT_NOFILE), site.next_supervisor
        resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
        self._running = Processes(
            run_dir,
            boot=boot_id(),
            file_limits=limits,
            loop=self._loop,
            report=self._report,
            lease=lease,
            next_supervisor=NextSupervisor(str(run_dir), command, environ) if command else None,
        )

    def events(self) -> AsyncIterator[Event]:
        """Return the events of the replicas."""
        return self._events

    async def place(self, plan: Plan, *, attempt: int = 0, keep: Sequence[str] = ()) -> Placed:
        """Claim the resources of the plan, and a port for every replica without one in the spec or in `keep`.

        `keep` are the addresses of an earlier placement. In a private network each replica has its own address, so that
        no port is claimed. Raise MustWait if other runs hold the resources.
        """
        self._plan = plan
        all_begun = bool(keep) and all(self._running.has_begun(Incarnation(each.id, attempt)) for each in plan.replicas)
        if not all_begun:
            self._running.prepare()
        python = None if all_begun else self._pythons.of(plan)  # running replicas no longer need it
        if plan.environment is None and self._site.python and not all_begun:
            require_interpreter(self._site.python, (each.argv for each in plan.replicas))
        if python:
            python.require()
        assignment = self._resources.claim(plan, attempt, all_begun=all_begun)
        placement, claims = place(plan, self._site, keep)
        if not keep:
            self._ports.replace(claims)
        if not all_begun:
            with_python = self._pythons.applied(plan)
            placement = {name: with_python(where) for name, where in placement.items()}
        return Placed(assignment.apply(placement), assignment.warnings) if assignment else Placed(placement)

    async def prepare(self, plan: Plan, helper: ReplicaId, *, incarnation: int = 0) -> None:
        """Start the helper, with drumline's own Python."""
        place = place_helper(plan, self._site)
        python = self._pythons.of(plan)
        argv: tuple[str, ...]
        env: Mapping[str, LaunchValue] = {}
        if plan.environment and python and helper == plan.environment.id:
            if not self._running.has_begun(Incarnation(helper, 0, incarnation)) and python.lock_if_built():
                found = Exit(0, message=f"{python.wanted.folder} exists")
                self._report(ReplicaExited(helper, 0, incarnation, found, self._loop.time()))
                return
            argv = python.wanted.argv
        else:
            if python:
                python.require()
            place = self._pythons.applied(plan)(place)
            item = next(each for each in bind_preparations(plan, place) if each.preparation.id == helper)
            argv = (sys.executable, "-IS", prepare.__file__, item.path, item.partial, *item.preparation.argv)
            env = item.env
        launch = Launch(Replica(helper, str(helper), argv, {}, Resources()), 0, place, env, incarnation)
        held = {helper: python.descriptors} if python else {}
        self._running.start([launch], partial(complete_environment, environ=self._environ), held)

    async def serve(self, plan: Plan, *, incarnation: int = 0) -> None:
        """Start TensorBoard on loopback, or watch the one that runs."""
        from drumline.engine.local.tensorboard import Server  # noqa: PLC0415 - few runs have it, and none at the start

        server = Server(self._run_dir, self._running, self._loop, self._report, incarnation)
        if server.resume():
            return
        place = self._pythons.applied(plan)(place_helper(plan, self._site))
        cache = self._site.cache or self._site.home / "cache"
        server.start(plan, place, cache / "environments", self._environ)

    async def start(self, launches: Sequence[Launch]) -> None:
        """Start the replicas of these launches that were not started before."""
        if not launches:
            self._ports.close()
            return
        network = await self._open_network(launches) if self._is_private else None
        try:
            for problem in too_long_arguments(launches):
                raise EngineError(problem)
            where = [launch.place for launch in launches]
            for folder in sorted({folder for each in where for folder in (each.output_dir, each.checkpoint_dir)}):
                _make_folder(folder, self._site.home)
            own = (*self._resources.descriptors, *self._pythons.descriptors)
            held = {launch.replica.id: (*own, *self._ports.descriptors(launch)) for launch in launches}
            env_of = partial(complete_environment, environ=self._environ)
            self._running.start(launches, env_of, held, network, self._open_warm(), self._resources)
            if self._plan and self._plan.replicas_of("ps"):  # their replicas may restart at the same address
                self._ports.keep()
        finally:
            if network:
                network.close()
            self._ports.close()

    async def stop(self, incarnations: Sequence[Incarnation], *, grace_seconds: float) -> None:
        """Begin to stop these incarnations, and return; each end is reported."""
        self._running.stop(incarnations, grace_seconds=grace_seconds)

    async def usage(self, *, watched: bool) -> Sequence[Usage]:
        """Measure each running replica with all its processes; read the usage of ended ones from their traces."""
        from drumline.engine.local.exits import ended_usage  # noqa: PLC0415 - nothing is measured before it runs

        keepers, found = {}, []
        for which, known in self._running.measured():
            if isinstance(known, int):
                keepers[which] = known
            elif usage := ended_usage(which, known):
                found.append(usage)
        if keepers:
            found += self._open_usage_sampler().measure(keepers, watched=watched)
        return found

    async def work_samples(self) -> Sequence[WorkSample]:
        """Return the work of each replica, with that of all its processes."""
        from drumline.engine.local.activity import read_work_samples  # noqa: PLC0415 - not needed at the start

        return [
            *read_work_samples(self._running.living(), self._usage_sampler.gpu_shares if self._usage_sampler else {})
        ]

    async def sockets(self) -> Sequence[Sockets]:
        """Return the sockets of each replica; with a private network, those in the replica's namespace."""
        from drumline.engine.local.sockets import read_sockets  # noqa: PLC0415 - only if the gang does not form

        return [*read_sockets(self._running.living())]

    async def stacks(self, incarnations: Sequence[Incarnation], *, gently: bool) -> None:
        """Save the stacks of these incarnations by a child process, with py-spy or by Python itself."""
        from drumline.engine.local.stacks import find_targets, save_in_child  # noqa: PLC0415 - only if a run hangs

        self._running.adopt(incarnations)
        targets = find_targets(self._run_dir, self._running.living(), incarnations)
        await save_in_child(targets, gently=gently)

    async def release(self, *, forced: bool = False) -> None:
        """Release the run's claims on this machine, or its place in the queue."""
        del forced
        self._ports.release()
        self._resources.release()
        if self._warm:
            self._warm.close()
        self._running.close()

    async def reported(self) -> None:
        """Return when everything that has happened before was read from `events`."""
        await self._events.join()

    def traces(self) -> Iterator[Path]:
        """Yield the trace folders of replicas."""
        return self._running.traces()

    async def _open_network(self, launches: Sequence[Launch]) -> Network:
        """Make the network of these launches; if that is cancelled, keep the claimed ports: the start is repeated."""
        from drumline.engine.local.network import Network  # noqa: PLC0415  # only where it is asked for

        network = Network(self._run_dir, launches)
        try:
            await network.connect()
        except BaseException as error:
            network.close()
            if isinstance(error, EngineError):
                self._ports.close()
            raise
        return network

    @property
    def _is_private(self) -> bool:
        return self._plan is not None and local_plan(self._plan).private_network

    def _open_warm(self) -> WarmProcesses | None:
        """Return the run's warm processes; None if the plan has none."""
        plan = self._plan
        if plan is None or plan.warm is None:
            return None
        if self._warm is None:
            from drumline.engine.local.warm.client import WarmProcesses, WarmSettings  # noqa: PLC0415  # only where there is one

            own = reserved(plan.framework) | {variable_name(name) for name in plan.parameters}
            kind = WarmSettings(plan.framework, plan.warm.modules, plan.warm.keep_seconds, own, _secrets(plan))
            self._warm = WarmProcesses(self._site.warm or self._site.home, kind, self._loop)
        return self._warm

    def _open_usage_sampler(self) -> UsageSampler:
        if self._usage_sampler is None:
            from drumline.engine.local.usage import UsageSampler  # noqa: PLC0415

            self._usage_sampler = UsageSampler(self._loop)
        return self._usage_sampler


def _secrets(plan: Plan) -> frozenset[str]:
    """Return the names of all variables with secrets: in replicas and preparations, and in the launching process."""
    envs = [*(each.env for each in plan.replicas), *(each.env for each in plan.preparations)]
    named = [(name, value) for env in envs for name, value in env.items() if isinstance(value, Secret)]
    return frozenset(variable for name, secret in named for variable in (name, secret.variable))


def _make_folder(folder: str, home: Path) -> None:
    """Make a folder for replicas: with mode 0700 in drumline's home, elsewhere with the umask."""
    path = Path(folder)
    try:
        if path.is_relative_to(home):
            make_folder(path)
        else:
            path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EngineError(f"cannot make the folder {folder}: {error.strerror}") from None
