"""This machine: every replica is a process beside the others, told apart by its port."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from drumline.engine.interpreter import has_drumline, require_interpreter
from drumline.engine.local.claim import Ports
from drumline.engine.local.environment import complete
from drumline.engine.local.life import Life
from drumline.engine.local.place import place, place_helper
from drumline.engine.local.planned import local_plan
from drumline.engine.local.room import Room
from drumline.engine.protocol import Capabilities, Site, Tell
from drumline.engine.strings import too_long
from drumline.errors import EngineError
from drumline.plan.bind import bind_preparations, reserved
from drumline.plan.name import variable_name
from drumline.plan.types import Launch, LaunchValue, Place, Placement, Plan, Replica, ReplicaId, Resources, Secret
from drumline.run.event import Exit, ReplicaExited
from drumline.runtime import prepare
from drumline.runtime.private import make_folder

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from drumline.engine.abilities import Saboteur
    from drumline.engine.health import Health, Patient
    from drumline.engine.local.meter import Meter
    from drumline.engine.local.network import Network
    from drumline.engine.local.processes import Processes
    from drumline.engine.local.python import LinePython
    from drumline.engine.local.warm.client import WarmProcesses
    from drumline.engine.output import Output, Written
    from drumline.engine.warm import WarmPool
    from drumline.run.quiet import Pulse
    from drumline.run.rendezvous import Sockets
    from drumline.run.usage import Usage


class LocalEngine:
    """Runs a line as processes of this machine."""

    capabilities = Capabilities(forms=("shell", "json", "yaml"))

    def __init__(self, site: Site, environ: Mapping[str, str], lease: tuple[str, float] | None = None) -> None:
        self._site = site
        self._lease = lease  # a file that is touched, and for how long replicas outlive that
        self._environ = environ
        self._ports = Ports()
        self._processes: Processes | None = None
        self._run_dir = Path()
        self._private = False
        self._plan: Plan | None = None
        self._warm: WarmProcesses | None = None
        self._python: LinePython | None = None
        self._meter: Meter | None = None
        self._loop: AbstractEventLoop
        self._tell: Tell
        self._room = Room(site, environ, boot=_boot)
        self._remarks: tuple[str, ...] = ()

    async def place(self, plan: Plan, *, attempt: int = 0, keep: Sequence[str] = ()) -> Placement:
        """Give every replica a port of its own: free, unless the spec or an earlier placement names it; and its GPUs.

        Whoever watches is going to start them, so for him the free ones are claimed too, and all that is asked for. In
        a private network each has an address of its own instead of a port.
        """
        self._private = local_plan(plan).private_network
        self._plan = plan
        running = self._processes
        all_begun = running and keep and all(running.has_begun(each.id, attempt) for each in plan.replicas)
        python = None if all_begun else self._python_of(plan)  # who goes on needs none, whatever became of it
        if plan.environment is None and self._site.python and not all_begun:
            require_interpreter(self._site.python, (each.argv for each in plan.replicas))
        if running is None:
            division = self._room.look(plan)
        else:
            if python:
                python.require()
            division = self._room.take(plan, attempt, all_begun=bool(all_begun))
        self._remarks = division.remarks if division else ()
        placement, claims = place(plan, self._site, keep, hold=self._processes is not None)
        if not keep:
            self._ports.take(claims)
        if not all_begun:
            with_python = self._with_python(plan)
            placement = {name: with_python(where) for name, where in placement.items()}
        if division is None:
            return placement
        return {
            name: where.replace(gpus=division.gpus.get(name), gpus_shared=name in division.shared)
            for name, where in placement.items()
        }

    def shortages(self, plan: Plan) -> Iterator[str]:
        """Say what the plan asks for beyond all that this machine has."""
        return self._room.shortages(plan)

    def remarks(self) -> Sequence[str]:
        """Say how GPUs are divided, where that is not as one would think."""
        return self._remarks

    def render(self, plan: Plan, launches: Sequence[Launch], form: str) -> str:
        """Write a script that starts any one replica by hand, or the same as data."""
        from drumline.engine.local.render import render  # noqa: PLC0415 - YAML, which no supervisor needs

        python = self._python_of(plan)
        if python:
            python.copy_runtime()
        elif runtime := self._lent_runtime():
            from drumline.engine.local.python import copy_runtime  # noqa: PLC0415  # only where it is needed

            copy_runtime(runtime)
        return render(plan, launches, form, build=python.wanted.argv if python else ())

    def objections(self, launches: Sequence[Launch]) -> Iterator[str]:
        """Refuse what no process can be given, and a network that the system does not allow."""
        yield from too_long(launches)
        if self._private:
            from drumline.engine.local.network import objection  # noqa: PLC0415

            if refused := objection():
                yield refused

    def watch(self, run_dir: Path, loop: AbstractEventLoop, tell: Tell) -> None:
        """Tell of everything that happens to this run's replicas from now on."""
        self._run_dir = run_dir
        self._loop = loop
        self._tell = tell
        from drumline.engine.local.processes import Processes  # noqa: PLC0415 - who only places has no use for it
        from drumline.runtime.order import NextSupervisor  # noqa: PLC0415

        # Descriptors for every replica: as many as the system allows. Replicas get back what the user had.
        limits, lease = resource.getrlimit(resource.RLIMIT_NOFILE), self._lease
        resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
        command = self._site.next_supervisor
        self._processes = Processes(
            run_dir,
            boot=_boot(),
            file_limits=limits,
            loop=loop,
            tell=tell,
            lease=lease,
            next_supervisor=NextSupervisor(str(run_dir), command, self._environ) if command else None,
        )
        self._room.watch(loop, tell)

    async def prepare(self, plan: Plan, helper: ReplicaId, *, incarnation: int = 0) -> None:
        """Start the helper; what builds, or watches over a preparation, needs nothing but drumline's own Python."""
        place = place_helper(plan, self._site)
        python = self._python_of(plan)
        argv: tuple[str, ...]
        env: Mapping[str, LaunchValue] = {}
        if plan.environment and python and helper == plan.environment.id:
            if not self._running.has_begun(helper, 0, incarnation) and python.is_there():
                found = Exit(0, message=f"{python.wanted.folder} was there")
                self._tell(ReplicaExited(helper, 0, incarnation, found, self._loop.time()))
                return
            argv = python.wanted.argv
        else:
            if python:
                python.require()
            place = self._with_python(plan)(place)
            item = next(each for each in bind_preparations(plan, place) if each.preparation.id == helper)
            argv = (sys.executable, "-IS", prepare.__file__, item.path, item.partial, *item.preparation.argv)
            env = item.env
        launch = Launch(Replica(helper, str(helper), argv, {}, Resources()), 0, place, env, incarnation)
        held = {helper: python.descriptors} if python else {}
        self._running.start([launch], partial(complete, environ=self._environ), held)

    async def serve(self, plan: Plan, *, incarnation: int = 0) -> None:
        """Start TensorBoard on loopback, or take up the one that is there."""
        from drumline.engine.local.tensorboard import Server  # noqa: PLC0415 - few have it, and nobody at the start

        server = Server(self._run_dir, self._running, self._loop, self._tell, incarnation)
        if server.resume():
            return
        place = self._with_python(plan)(place_helper(plan, self._site))
        cache = self._site.cache or self._site.home / "cache"
        server.start(plan, place, cache / "environments", self._environ)

    async def start(self, launches: Sequence[Launch]) -> None:
        """Start the replicas that have not been started before."""
        self._running.prepare()
        network = await self._open_network(launches) if self._private else None
        try:
            for objection in too_long(launches):
                raise EngineError(objection)
            where = [launch.place for launch in launches]
            for folder in sorted({folder for each in where for folder in (each.output_dir, each.checkpoint_dir)}):
                _make_folder(folder, self._site.home)
            own = (*self._room.descriptors, *(self._python.descriptors if self._python else ()))
            held = {launch.replica.id: (*own, *self._ports.descriptors(launch)) for launch in launches}
            running, env_of = self._running, partial(complete, environ=self._environ)
            running.start(launches, env_of, held, network, self._open_warm(), self._room)
            if self._plan and self._plan.replicas_of("ps"):  # such gangs may have a replica return to its address
                self._ports.keep()
        finally:
            if network:
                network.close()
            self.close()

    async def stop(
        self,
        replicas: Sequence[ReplicaId],
        attempt: int,
        *,
        grace_seconds: float,
        incarnations: Mapping[ReplicaId, int] = MappingProxyType({}),
    ) -> None:
        """Begin to stop these; each end is told."""
        lives = [Life(replica, attempt, incarnations.get(replica, 0)) for replica in replicas]
        self._running.stop(lives, grace_seconds=grace_seconds)

    def close(self) -> None:
        """Let go of the claimed ports; whoever was started keeps its own."""
        self._ports.close()

    async def usage(self, *, watched: bool) -> Sequence[Usage]:
        """Measure everybody with all that it started; what has ended is in its trace."""
        from drumline.engine.local.ended import ended_usage  # noqa: PLC0415 - nothing is measured before it runs

        keepers, found = {}, []
        for life, known in self._running.measured():
            if isinstance(known, int):
                keepers[life] = known
            elif usage := ended_usage(life, known):
                found.append(usage)
        if keepers:
            found += self._open_meter().measure(keepers, watched=watched)
        return found

    async def pulses(self) -> Sequence[Pulse]:
        """Count what everybody has done, with all that it started."""
        from drumline.engine.local.pulse import read_pulses  # noqa: PLC0415 - when a line has been up for a while

        return [*read_pulses(self._running.living(), self._meter.gpu_shares if self._meter else {})]

    async def sockets(self) -> Sequence[Sockets]:
        """Look at everybody's sockets, each in its own network."""
        from drumline.engine.local.sockets import read_sockets  # noqa: PLC0415 - only where a line does not form

        return [*read_sockets(self._running.living())]

    async def stacks(
        self,
        replicas: Sequence[ReplicaId],
        attempt: int,
        *,
        gently: bool,
        incarnations: Mapping[ReplicaId, int] = MappingProxyType({}),
    ) -> None:
        """Have a child ask py-spy, or Python itself."""
        from drumline.engine.local.stacks import find_targets, save_in_child  # noqa: PLC0415 - only where a line hangs

        lives = [Life(replica, attempt, incarnations.get(replica, 0)) for replica in replicas]
        self._running.take_up(lives)
        targets = find_targets(self._run_dir, self._running.living(), lives)
        await save_in_child(targets, gently=gently)

    async def release(self, *, forced: bool = False) -> None:
        """Give back what the run claimed of this machine, or its place in line."""
        del forced
        self._ports.release()
        self._room.release()
        if self._warm:
            self._warm.close()
        if self._processes:
            self._processes.close()

    def saboteur(self) -> Saboteur:
        """Who sends signals, and pulls cables."""
        from drumline.engine.local.sabotage import LocalSaboteur  # noqa: PLC0415 - only in a drill

        return LocalSaboteur()

    def examine(self, patient: Patient) -> Iterable[Health]:
        """Examine this machine."""
        from drumline.engine.local.doctor import examine  # noqa: PLC0415 - few commands need it

        return examine(patient, self)

    def open_output(self, written: Written) -> Output:
        """Return the run's folder."""
        from drumline.engine.local.output import open_output  # noqa: PLC0415 - few commands need it

        return open_output(written)

    def warm_pool(self) -> WarmPool:
        """Return access to the warm processes of this home."""
        from drumline.engine.local.warm.known import LocalWarmPool  # noqa: PLC0415 - one command needs it

        return LocalWarmPool(self._site.home)

    def traces(self) -> Iterator[Path]:
        """The folders of everybody who is alive."""
        return self._running.traces()

    def _python_of(self, plan: Plan) -> LinePython | None:
        if plan.environment is None:
            self._python = None
        elif self._python is None or self._python.environment != plan.environment:
            from drumline.engine.local.python import LinePython  # noqa: PLC0415  # only where it is asked for

            self._python = LinePython(plan.environment, self._site, self._environ)
        return self._python

    def _with_python(self, plan: Plan) -> Callable[[Place], Place]:
        """Return what adds to a place the plan's environment, or the runtime for a Python that has no drumline."""
        if python := self._python_of(plan):
            return python.applied
        runtime = self._lent_runtime()
        return lambda place: place.replace(runtime=runtime, runtime_on_path=True) if runtime else place

    def _lent_runtime(self) -> str | None:
        """Where a copy of the runtime is for a Python that has no drumline; it is made once a run is watched."""
        python = self._site.python
        if python is None or python.folder == str(Path(sys.executable).parent) or has_drumline(python, self._environ):
            return None
        from drumline.engine.local.python import copy_runtime, runtime_folder  # noqa: PLC0415  # only where it is needed

        folder = runtime_folder(self._site)
        if self._processes:
            copy_runtime(folder)
        return folder

    async def _open_network(self, launches: Sequence[Launch]) -> Network:
        """Make the network of these; the claimed ports stay if that is cancelled, since they are started again."""
        from drumline.engine.local.network import Network  # noqa: PLC0415  # only where it is asked for

        network = Network(self._run_dir, launches)
        try:
            await network.connect()
        except BaseException as error:
            network.close()
            if isinstance(error, EngineError):
                self.close()
            raise
        return network

    def _open_warm(self) -> WarmProcesses | None:
        """What this line's replicas can be forked from, if they are to be."""
        plan = self._plan
        if plan is None or plan.warm is None:
            return None
        if self._warm is None:
            from drumline.engine.local.warm.client import Kind, WarmProcesses  # noqa: PLC0415  # only where there is one

            own = reserved(plan.framework) | {variable_name(name) for name in plan.parameters}
            kind = Kind(plan.framework, plan.warm.modules, plan.warm.keep_seconds, own, _secrets(plan))
            self._warm = WarmProcesses(self._site.warm or self._site.home, kind, self._loop)
        return self._warm

    def _open_meter(self) -> Meter:
        if self._meter is None:
            from drumline.engine.local.meter import Meter  # noqa: PLC0415

            self._meter = Meter(self._loop)
        return self._meter

    @property
    def _running(self) -> Processes:
        if self._processes is None:
            raise AssertionError("an engine is watched before anything is started")
        return self._processes


def get_ready() -> None:
    """Import what a supervisor needs and whoever only places does not."""
    import_module("drumline.engine.local.processes")


def make_engine(site: Site) -> LocalEngine:
    """Return the engine for this machine."""
    return LocalEngine(site, dict(os.environ))  # a plain one, since it is copied for every replica


def _secrets(plan: Plan) -> frozenset[str]:
    """Return every variable that holds a secret: in a replica or preparation, and where they are launched."""
    envs = [*(each.env for each in plan.replicas), *(each.env for each in plan.preparations)]
    named = [(name, value) for env in envs for name, value in env.items() if isinstance(value, Secret)]
    return frozenset(variable for name, secret in named for variable in (name, secret.variable))


def _boot() -> str:
    from drumline.runtime.keeper import boot_id  # noqa: PLC0415 - see `get_ready`

    return boot_id()


def _make_folder(folder: str, home: Path) -> None:
    """Make a folder where replicas write: with mode 0700 in drumline's own, elsewhere as the umask has it."""
    path = Path(folder)
    try:
        if path.is_relative_to(home):
            make_folder(path)
        else:
            path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EngineError(f"cannot make the folder {folder}: {error.strerror}") from None
