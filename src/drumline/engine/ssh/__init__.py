"""SSH hosts: every replica is a process of a host, kept there by the local engine over there.

Nothing is installed on a host: drumline's own package is carried there once, and a *hand* of it does what it is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from drumline.engine.extra import needed_by
from drumline.engine.protocol import Capabilities, Engine, Site, Tell
from drumline.errors import EngineError
from drumline.plan.types import Launch, Placement, Plan, ReplicaId

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from drumline.engine.abilities import Saboteur
    from drumline.engine.health import Health, Patient
    from drumline.engine.output import Output, Written
    from drumline.engine.ssh.run import SshRun
    from drumline.run.doubt import Doubt
    from drumline.run.quiet import Pulse
    from drumline.run.rendezvous import Sockets
    from drumline.run.usage import Usage


class SshEngine:
    """Runs a line as processes of several hosts."""

    capabilities = Capabilities(forms=("shell", "json", "yaml"))

    def __init__(self, site: Site) -> None:
        self._site = site
        self._watched: SshRun | None = None
        self._remarks: tuple[str, ...] = ()

    async def place(self, plan: Plan, *, attempt: int = 0, keep: Sequence[str] = ()) -> Placement:
        """Spread the line over the hosts; whoever watches has them claim ports and all that is asked for.

        Where an attempt is that is under way was written down when it was placed, so nobody is asked for that.
        """
        run = self._watched
        if run is None:
            from drumline.engine.ssh.outline import outline  # noqa: PLC0415

            placement, remarks = outline(plan, self._site)
        elif keep and (placed := run.placed(attempt)):
            placement, remarks = placed.places, ()
        else:
            placement, remarks = await run.place(plan, attempt)
        self._remarks = tuple(remarks)
        return placement

    async def reach(self, plan: Plan) -> Plan:
        """See that every host answers, knows us and has a Python; the plan then says what they have."""
        from drumline.engine.ssh.luggage import refuse_output_among_code, remarks  # noqa: PLC0415

        with needed_by("ssh", "ssh"):
            from drumline.engine.ssh.reach import reach  # noqa: PLC0415 - asyncssh, which no other command loads

        refuse_output_among_code(plan)
        self._remarks = (*self._remarks, *remarks(plan, self._site))
        return await reach(plan)

    def remarks(self) -> Sequence[str]:
        """Say which hosts the line goes without, and how they divide their GPUs."""
        return self._remarks

    def render(self, plan: Plan, launches: Sequence[Launch], form: str) -> str:
        """Write a script that starts any one replica by hand, on its host."""
        from drumline.engine.local.planned import for_local  # noqa: PLC0415
        from drumline.engine.local.render import render  # noqa: PLC0415 - YAML, which no supervisor needs
        from drumline.engine.ssh.outline import assigned, written  # noqa: PLC0415
        from drumline.engine.ssh.planned import hosts_of  # noqa: PLC0415

        hosts = assigned(plan, hosts_of(plan))
        return render(for_local(plan), list(map(written, launches)), form, hosts=hosts)

    def objections(self, launches: Sequence[Launch]) -> Iterator[str]:
        """Refuse what no process can be given."""
        from drumline.engine.strings import too_long  # noqa: PLC0415

        return too_long(launches)

    def watch(self, run_dir: Path, loop: AbstractEventLoop, tell: Tell) -> None:
        """Connect to all hosts, and tell of everything that happens there from now on."""
        from drumline.engine.ssh.run import SshRun  # noqa: PLC0415 - who only places has no use for it
        from drumline.plan.codec import plan_from_json  # noqa: PLC0415

        plan = plan_from_json((run_dir / "plan.json").read_text("utf-8"))
        self._watched = SshRun(plan, run_dir, self._site, loop, tell)

    async def prepare(self, plan: Plan, helper: ReplicaId, *, incarnation: int = 0) -> None:
        """Have every host that answers build or make it."""
        run = self._run
        from drumline.engine.incarnation import Incarnation  # noqa: PLC0415

        run.prepare(plan, Incarnation(helper, 0, incarnation))

    async def start(self, launches: Sequence[Launch]) -> None:
        """Have every host start its replicas that have not been."""
        run = self._run
        for objection in self.objections(launches):
            raise EngineError(objection)
        run.start(launches)

    async def stop(
        self,
        replicas: Sequence[ReplicaId],
        attempt: int,
        *,
        grace_seconds: float,
        incarnations: Mapping[ReplicaId, int] = MappingProxyType({}),
    ) -> None:
        """Have these stopped where they are; each end is told."""
        run = self._run
        from drumline.engine.incarnation import Incarnation  # noqa: PLC0415

        run.stop([Incarnation(each, attempt, incarnations.get(each, 0)) for each in replicas], grace_seconds)

    def close(self) -> None:
        """Let go of what hosts have claimed and no start took over."""
        if self._watched:
            self._watched.close()

    async def release(self, *, forced: bool = False) -> None:
        """See that nothing of the run is left on any host, and hang up."""
        if self._watched:
            await self._watched.release(forced=forced)

    async def usage(self, *, watched: bool) -> Sequence[Usage]:
        """What hosts measure that answer at once."""
        return await self._run.survey.usage(watched=watched)

    async def pulses(self) -> Sequence[Pulse]:
        """What everybody has done, on hosts that answer at once."""
        return await self._run.survey.pulses()

    async def sockets(self) -> Sequence[Sockets]:
        """On which ports everybody listens, on hosts that answer at once."""
        return await self._run.survey.sockets()

    async def stacks(
        self,
        replicas: Sequence[ReplicaId],
        attempt: int,
        *,
        gently: bool,
        incarnations: Mapping[ReplicaId, int] = MappingProxyType({}),
    ) -> None:
        """Have the hosts save stacks, and bring them here."""
        run = self._run
        from drumline.engine.incarnation import Incarnation  # noqa: PLC0415

        lives = [Incarnation(each, attempt, incarnations.get(each, 0)) for each in replicas]
        await run.survey.stacks(lives, gently=gently)

    def saboteur(self) -> Saboteur:
        """Who has a hand on the host do it."""
        from drumline.engine.ssh.sabotage import SshSaboteur  # noqa: PLC0415 - only in a drill

        return SshSaboteur()

    def examine(self, patient: Patient) -> Iterable[Health]:
        """Examine every host."""
        with needed_by("ssh", "ssh"):
            from drumline.engine.ssh.doctor import examine  # noqa: PLC0415 - few commands need it

        return examine(patient)

    def open_output(self, written: Written) -> Output:
        """Return access to the output on hosts, or to what was fetched."""
        with needed_by("ssh", "ssh"):
            from drumline.engine.ssh.output import open_output  # noqa: PLC0415 - few commands need it

        return open_output(written)

    def describe_output(self, written: Written) -> str:
        """Return where the output is."""
        from drumline.engine.ssh.remains import describe_output  # noqa: PLC0415 - few commands need it

        return describe_output(written)

    def remains(self, written: Written) -> Iterator[str]:
        """Yield what stays when the run is removed."""
        from drumline.engine.ssh.remains import remains  # noqa: PLC0415 - few commands need it

        return remains(written)

    def doubts(self, written: Written) -> Sequence[Doubt]:
        """Return the hosts that could not be asked."""
        from drumline.engine.ssh.remains import doubts  # noqa: PLC0415 - one command needs it

        return doubts(written)

    def forget(self, written: Written) -> None:
        """Remove the run's folders on all hosts."""
        with needed_by("ssh", "ssh"):
            from drumline.engine.ssh.output import open_output  # noqa: PLC0415 - few commands need it

        open_output(written).forget()

    def traces(self) -> Iterator[Path]:
        """The folders into which logs come."""
        return self._run.traces()

    @property
    def _run(self) -> SshRun:
        if self._watched is None:
            raise AssertionError("an engine is watched before anything is started")
        return self._watched


def make_engine(site: Site) -> Engine:
    """Return the engine for hosts."""
    return SshEngine(site)
