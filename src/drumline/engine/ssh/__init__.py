"""The ssh engine: each replica is a process on a host, where an agent starts it with the local engine.

drumline need not be installed on a host: the agent's package is sent there once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from drumline.engine.extra import needed_by
from drumline.engine.protocol import Capabilities, Engine, Problem, Session, Site
from drumline.plan.types import Launch, Placement, Plan

if TYPE_CHECKING:
    from drumline.engine.abilities import FaultInjector
    from drumline.engine.doctor_checks import DoctorCheck, DoctorTarget
    from drumline.engine.output import Output, RunOutput
    from drumline.run.unverified import UnverifiedHost


class SshEngine:
    """Runs replicas as processes of several hosts."""

    capabilities = Capabilities(forms=("shell", "json", "yaml"))

    def __init__(self, site: Site) -> None:
        self._site = site

    async def place(self, plan: Plan) -> Placement:
        """Spread the replicas over the hosts that the plan names; contact no host."""
        from drumline.engine.ssh.preview import preview_placement  # noqa: PLC0415

        return preview_placement(plan, self._site)[0]

    async def reach(self, plan: Plan) -> tuple[Plan, Sequence[str]]:
        """Check that every host answers, accepts this user and has Python; return the plan with their resources."""
        from drumline.engine.ssh.folders import folder_warnings, refuse_output_among_code  # noqa: PLC0415

        with needed_by("ssh", "ssh"):
            from drumline.engine.ssh.reach import reach  # noqa: PLC0415 - asyncssh, which no other command loads

        refuse_output_among_code(plan)
        return await reach(plan), tuple(folder_warnings(plan, self._site))

    def render(self, plan: Plan, launches: Sequence[Launch], form: str) -> str:
        """Return a script that starts any one replica by hand, on its host."""
        from drumline.engine.local.planned import for_local  # noqa: PLC0415
        from drumline.engine.local.render import render  # noqa: PLC0415 - YAML, which no supervisor needs
        from drumline.engine.ssh.plan_options import hosts_of  # noqa: PLC0415
        from drumline.engine.ssh.preview import preview_hosts, with_home_paths  # noqa: PLC0415

        hosts = preview_hosts(plan, hosts_of(plan))
        return render(for_local(plan), list(map(with_home_paths, launches)), form, hosts=hosts)

    def problems(self, plan: Plan, launches: Sequence[Launch]) -> Iterator[Problem]:
        """Yield a problem for each argument that is too long, and a warning if the hosts do not share OUTPUT_DIR."""
        from drumline.engine.argument_limits import too_long_arguments  # noqa: PLC0415
        from drumline.engine.ssh.preview import preview_placement  # noqa: PLC0415

        yield from map(Problem, too_long_arguments(launches))
        for warning in preview_placement(plan, self._site)[1]:
            yield Problem(warning, is_warning=True)

    @asynccontextmanager
    async def open(self, run_dir: Path) -> AsyncIterator[Session]:
        """Return the session of the run in this folder, which connects to all hosts until the block ends."""
        from drumline.engine.ssh.session import SshSession  # noqa: PLC0415 - commands that only place do not need it
        from drumline.plan.codec import plan_from_json  # noqa: PLC0415

        session = SshSession(plan_from_json((run_dir / "plan.json").read_text("utf-8")), run_dir, self._site)
        try:
            yield session
        finally:
            await session.disconnect()

    def fault_injector(self) -> FaultInjector:
        """Return the fault injector for replicas on hosts."""
        from drumline.engine.ssh.fault_injector import SshFaultInjector  # noqa: PLC0415 - only in a drill

        return SshFaultInjector()

    def diagnose(self, target: DoctorTarget) -> Iterable[DoctorCheck]:
        """Check every host."""
        with needed_by("ssh", "ssh"):
            from drumline.engine.ssh.doctor import diagnose  # noqa: PLC0415 - few commands need it

        return diagnose(target)

    def open_output(self, run_output: RunOutput) -> Output:
        """Return access to the output on the chief's host, or to its fetched copy on this machine."""
        with needed_by("ssh", "ssh"):
            from drumline.engine.ssh.output import open_output  # noqa: PLC0415 - few commands need it

        return open_output(run_output)

    def describe_output(self, run_output: RunOutput) -> str:
        """Return a description of where the output is."""
        from drumline.engine.ssh.remains import describe_output  # noqa: PLC0415 - few commands need it

        return describe_output(run_output)

    def remains(self, run_output: RunOutput) -> Iterator[str]:
        """Yield a description of each folder that remains when the run is removed."""
        from drumline.engine.ssh.remains import remains  # noqa: PLC0415 - few commands need it

        return remains(run_output)

    def unverified_hosts(self, run_output: RunOutput) -> Sequence[UnverifiedHost]:
        """Return the hosts on which processes of the run may remain, since they did not answer."""
        from drumline.engine.ssh.remains import unverified_hosts  # noqa: PLC0415 - one command needs it

        return unverified_hosts(run_output)

    def remove_files(self, run_output: RunOutput) -> None:
        """Remove the run's folders on all hosts."""
        with needed_by("ssh", "ssh"):
            from drumline.engine.ssh.output import open_output  # noqa: PLC0415 - few commands need it

        open_output(run_output).remove_files()


def make_engine(site: Site) -> Engine:
    """Return the engine for hosts."""
    return SshEngine(site)
