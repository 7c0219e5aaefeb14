"""The contract's testbed on real hosts: replicas are processes there, and gates are files in a shared folder."""

from __future__ import annotations

import asyncio
import secrets
import shlex
from pathlib import Path

from drumline.engine import protocol
from drumline.engine.local.trace import read_trace
from drumline.engine.ssh import SshEngine
from drumline.engine.ssh.planned import Host, Hosts, with_hosts
from drumline.engine.strings import LONGEST_STRING_BYTES
from drumline.plan.types import Environment, Launch, Plan, ReplicaId
from drumline.run.traces import TRACE, trace_dir
from drumline.runtime.lock import is_locked
from hosts.host_cluster import HOME, SHARED, HostCluster
from scaffold.loops import SteppedLoop
from scaffold.testbeds import Behavior, LocalTestBed, Rendered, read_json
from scaffold.waiting import PATIENCE_SECONDS, wait_until


class _PatientEngine(SshEngine):
    """One that waits for hosts which are only slow: it is of what they answer that the contract speaks."""

    def watch(self, run_dir: Path, loop: asyncio.AbstractEventLoop, tell: protocol.Tell) -> None:
        super().watch(run_dir, loop, tell)
        self.loop = loop
        self._run.survey.patience_seconds = self._run.places.patience_seconds = PATIENCE_SECONDS


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
        self._engines: list[_PatientEngine] = []

    def make_engine(self) -> protocol.Engine:
        for engine in self._engines:
            self._end(engine)  # that of a supervisor that is gone does nothing any more
        self._engines.append(_PatientEngine(self._site))
        return self._engines[-1]

    def make_loop(self) -> SteppedLoop:
        return SteppedLoop()

    def of(self, plan: Plan) -> Plan:
        # What is prepared is for all runs of a project, and a helper has as many logs as there are hosts.
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

    def rest(self, engine: protocol.Engine) -> None:
        self._release(engine)

    def have_environment(self, environment: Environment) -> None:
        raise AssertionError("nobody asks for it here")

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
        for engine in self._engines:
            self._release(engine)

    def _release(self, engine: protocol.Engine) -> None:
        assert isinstance(engine, _PatientEngine)
        if engine._watched and not engine.loop.is_closed():
            engine.loop.run_until_complete(engine.release())

    def _end(self, engine: _PatientEngine) -> None:
        if engine._watched and not engine.loop.is_closed():
            engine.loop.run_until_complete(engine._watched.hang_up())
