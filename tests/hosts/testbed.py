"""The contract's testbed on real hosts: replicas are processes on them, and gates are files in a shared folder."""

from __future__ import annotations

import secrets
import shlex
from pathlib import Path

from drumline.engine import protocol
from drumline.engine.argument_limits import LONGEST_STRING_BYTES
from drumline.engine.local.trace import read_trace
from drumline.engine.ssh import SshEngine
from drumline.engine.ssh.plan_options import Host, Hosts, with_hosts
from drumline.engine.ssh.session import SshSession
from drumline.plan.types import Environment, Launch, Plan, ReplicaId
from drumline.run.traces import TRACE, trace_dir
from drumline.runtime.lock import is_locked
from hosts.host_cluster import HOME, SHARED, HostCluster
from scaffold.loops import SteppedLoop
from scaffold.testbeds import Behavior, LocalTestBed, OpenSessions, Rendered, read_json
from scaffold.waiting import PATIENCE_SECONDS, wait_until


class SshTestBed:
    """Processes of two hosts."""

    refused: tuple[str, ...] = ("echo", "x" * (LONGEST_STRING_BYTES + 1))

    def __init__(self, folder: Path, host_cluster: HostCluster) -> None:
        self._host_cluster = host_cluster
        self._names = host_cluster.names[:2]
        self._unique = secrets.token_hex(4)
        project = folder / "project"
        project.mkdir()
        self._site = protocol.Site(project, folder / "home", cores=2)
        self._sessions = OpenSessions()

    def make_engine(self) -> protocol.Engine:
        return SshEngine(self._site)

    def open_session(self, engine: protocol.Engine, run_dir: Path, loop: SteppedLoop) -> protocol.Session:
        """Open a session with a long timeout, so that slow hosts do not count as lost."""
        self._sessions.leave()  # the session of an ended supervisor does nothing any more
        session = self._sessions.open(engine, run_dir, loop)
        assert isinstance(session, SshSession)
        session.host_queries.patience_seconds = session.places.patience_seconds = PATIENCE_SECONDS
        return session

    def make_loop(self) -> SteppedLoop:
        return SteppedLoop()

    def of(self, plan: Plan) -> Plan:
        # Prepared data is for all runs of a project, and a helper has one log for each host.
        names = self._names[:1] if plan.preparations else self._names
        hosts = Hosts(tuple(map(Host, names)), self._unique, "tester", str(self._host_cluster.config))
        return with_hosts(plan, hosts).replace(
            engine="ssh", is_elsewhere=True, fetches_output=True, project=f"digits-{self._unique}"
        )

    def command(self, *behaviors: Behavior) -> tuple[str, ...]:
        return LocalTestBed.command(self, *behaviors)  # type: ignore[arg-type]

    def _script(self, behavior: Behavior) -> str:
        return LocalTestBed._script(self, behavior)  # type: ignore[arg-type]

    def _gate(self, number: int) -> str:
        return f"{SHARED}/{self._unique}-{number}"

    def rendered(self, engine: protocol.Engine, plan: Plan, launches: tuple[Launch, ...]) -> dict[ReplicaId, Rendered]:
        return read_json(engine.render(plan, launches, "json"))

    def rest(self, session: protocol.Session) -> None:
        self._sessions.release(session)

    def have_environment(self, environment: Environment) -> None:
        raise AssertionError("not used on hosts")

    def open(self, gate: int) -> None:
        (self._host_cluster.shared / f"{self._unique}-{gate}").touch()

    def has_begun(self, run_dir: Path, replica: ReplicaId, attempt: int) -> bool:
        traces = self._traces(replica, attempt)
        return any(is_locked(each) or read_trace(each).keeper is not None for each in traces)

    def wait_ended(self, run_dir: Path, replica: ReplicaId) -> None:
        wait_until(lambda: any(read_trace(each).over for each in self._traces(replica, 0)))

    def _traces(self, replica: ReplicaId, attempt: int) -> list[Path]:
        run = f"{HOME}/.local/share/drumline/runs/{self._unique}"
        inner = f"{trace_dir(replica, attempt)}/{TRACE}"
        return [self._host_cluster.path(name, f"{run}/agents/{name}/{inner}") for name in self._names]

    def left(self) -> list[str]:
        mark = f"runs/{self._unique}/"
        found = []
        for name in self._names:
            lines = self._host_cluster.run(
                name, "sh", "-c", f"grep -lzs {shlex.quote(mark)} /proc/[0-9]*/environ", check=False
            )
            found += [f"{line} on {name}" for line in lines.splitlines()]
        return found

    def close(self) -> None:
        self._sessions.release_all()
