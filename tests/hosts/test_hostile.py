"""A malicious agent can affect its own replicas only, and no command ends with a traceback.

`python` of the spec is a program that runs the real one; with a file on the host, it patches the agent.
"""

from __future__ import annotations

import os
import signal
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from drumline.run.event import EngineWarned, ReplicaStarted
from drumline.run.state import Phase
from hosts.host_cluster import SHARED, HostCluster
from scaffold.waiting import wait_until
from scaffold.workspace import Run, Workspace

PYTHON = "/run/liar"
LIE = "/run/lie"
_LIAR = f"""#!/usr/bin/env python3
import os, sys
words, last = sys.argv[1:], "from drumline.engine.agent.main import main\\n"
if "-I" in words and os.path.exists("{LIE}"):
    at = words.index("-c") + 1
    words[at] = words[at].replace(last, last + open("{LIE}").read())
os.execvp("python3", ["python3", *words])
"""
# The names that a patch of the agent can use.
_BEGINNING = """
import os, time
from drumline.engine.agent import verbs
from drumline.engine.agent.replicas import Replicas
def raw(replicas, data):
    writer = replicas._write.__self__
    os.set_blocking(writer._descriptor, True)
    os.write(writer._descriptor, data)
def when_started(lie):
    start = Replicas.start
    async def do_start(replicas, message):
        answer = await start(replicas, message)
        replicas._loop.call_later(0.5, lambda: lie(replicas))
        return answer
    Replicas.start = do_start
"""
_MOST_BYTES = 256 << 20  # limit for the peak memory of a supervisor


@pytest.fixture
def liar(host_cluster: HostCluster) -> Iterator[HostCluster]:
    """Yield the hosts with a program that patches the agent; the patches are removed after the test."""
    for name in host_cluster.names:
        path = host_cluster.path(name, PYTHON)
        path.write_text(_LIAR)
        path.chmod(0o755)
    yield host_cluster
    for name in host_cluster.names:
        host_cluster.path(name, LIE).unlink(missing_ok=True)
        for process in host_cluster.processes(name):  # a malicious agent may not end its replicas
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)


def lie(host_cluster: HostCluster, text: str, host: str = "h2") -> None:
    host_cluster.path(host, LIE).write_text(f"{_BEGINNING}{textwrap.dedent(text)}\n")


def spec(run: str, *, more: str = "") -> str:
    hosts = f"engine: {{ssh: {{hosts: [h1, h2], python: {PYTHON}, lost: 10s{more}}}}}\n"
    return f"run: {run}\nroles: {{worker: 2}}\n{hosts}"


def warnings(run: Run) -> list[str]:
    return [event.message for event in run.events if isinstance(event, EngineWarned)]


def peak_bytes(run: Run, before: int) -> int:
    """Return the peak memory of the supervisor so far."""
    with suppress(OSError):
        pid = run.supervisor()
        for line in Path(f"/proc/{pid}/status").read_text().splitlines() if pid else ():
            if line.startswith("VmHWM:"):
                return max(before, int(line.split()[1]) << 10)
    return before


def test_a_host_that_claims_another_replica_gets_neither_it_nor_its_secrets(
    workspace: Workspace, liar: HostCluster
) -> None:
    lie(
        liar,
        """
        place = Replicas.place
        async def do_place(replicas, message):
            answer = await place(replicas, message)
            answer["places"]["worker.0"] = next(iter(answer["places"].values()))
            return answer
        Replicas.place = do_place
        """,
    )
    run = workspace.train(spec("sleep 600") + "env: {TOKEN: {from: TOKEN}}\n", env={"TOKEN": "sesame"})
    run.wait_for(Phase.FAILED)
    assert "h2 has sent something that drumline does not send: a place for 'worker.0'" in run.cause.exit.message
    assert not any(isinstance(event, ReplicaStarted) for event in run.events)
    said = liar.run("h2", "sh", "-c", "cat /proc/[0-9]*/environ", check=False)
    assert "sesame" not in said


def test_events_of_replicas_that_a_host_was_not_given_are_ignored_with_a_warning(
    workspace: Workspace, liar: HostCluster
) -> None:
    lie(
        liar,
        """
        @when_started
        def lie(replicas):
            replicas._write({"do": "log", "incarnation": "worker.0 0 0", "at": 0}, b"a forged line\\n")
            replicas._write({"do": "log", "incarnation": "worker.0 0 0", "at": 6}, b"a forged line\\n")
            replicas._write({"do": "file", "incarnation": "worker.0 0 0", "name": "error"}, b'{"error": "forged"}')
            end = {"event": "ReplicaExited", "replica": "worker.0", "attempt": 0, "incarnation": 0}
            replicas._write({"do": "event", "event": {**end, "exit": {"code": 9}, "at_seconds": 1.0}}, b"")
            replicas._write({"do": "event", "event": {"event": "EngineFailed", "attempt": 7, "message": "forged"}}, b"")
        """,
    )
    run = workspace.train(spec("'echo hello; sleep 4'"))
    run.wait_for(Phase.FINISHED)
    assert run.log("worker.0") == b"hello\n"
    assert not (run.trace_dir("worker.0") / "error").exists()
    told = [warning for warning in warnings(run) if "was not ordered" in warning]
    assert told == ["h2 reports replicas or attempts that it was not ordered to start; these reports are ignored"]


@pytest.mark.parametrize(
    "said",
    [
        """raw(replicas, b'{"do": "log", "incarnation": "worker.1 0 0", "at": 0, "bytes": 1000000000000}\\n')""",
        """
        while True:
            raw(replicas, b"x" * 65536)
        """,
        """
        head = b'{"do": "log", "incarnation": "worker.1 0 0", "at": 0, "bytes": 1000000000000}\\n'
        while True:
            raw(replicas, head + b"x" * 60000)
        """,
        """raw(replicas, b"[" * 1000000 + b"\\n")""",
        """raw(replicas, b'{"do": "event", "event": {"event": "ReplicaExited", "attempt": NaN}}\\n')""",
        """raw(replicas, b'{"do": "file", "incarnation": "worker.1 0 0", "name": "a\\\\u0000b"}\\n')""",
        """verbs.HOST_VERBS["clock"] = lambda message: {"now": 1e300, "time": 1.0}""",
        """verbs.HOST_VERBS["clock"] = lambda message: {"now": [[]], "time": 1.0}""",
    ],
    ids=["announced", "endless line", "endless frames", "deep", "NaN", "NUL", "clock", "shape"],
)
def test_a_host_that_violates_the_protocol_is_lost_and_the_supervisor_s_memory_is_bounded(
    workspace: Workspace, liar: HostCluster, said: str
) -> None:
    body = textwrap.indent(textwrap.dedent(said), "    ")
    lie(liar, "@when_started\ndef lie(replicas):\n" + body)
    run = workspace.train(spec("sleep 600"))
    peak = 0

    def is_over() -> bool:
        nonlocal peak
        peak = peak_bytes(run, peak)
        return run.state.phase.is_final

    wait_until(is_over, 120)
    run.wait_for(Phase.FAILED)
    assert str(run.cause.replica) == "worker.1"
    assert "h2" in run.cause.exit.message
    assert 0 < peak < _MOST_BYTES
    assert "Traceback" not in run.said()


def test_a_run_with_a_host_that_sends_malformed_answers_can_be_killed(workspace: Workspace, liar: HostCluster) -> None:
    lie(
        liar,
        """
        async def answer(replicas, message):
            return {"nonsense": [None]}
        for name in ("usage", "work_samples", "sockets", "stop", "release", "clear"):
            setattr(Replicas, name, answer)
        """,
    )
    run = workspace.train(spec("sleep 600"))
    run.wait_started()
    answer = workspace.run("kill", "--force", run.id, seconds=120)
    assert (answer.code, run.state.phase) == (1, Phase.KILLED), answer
    assert "is over, but h2 could not be reached" in answer.err


def test_invalid_unicode_is_shown_with_replacement_characters(workspace: Workspace, liar: HostCluster) -> None:
    lie(
        liar,
        """
        @when_started
        def lie(replicas):
            event = {"event": "EngineWarned", "attempt": 0, "message": "a\\ud800b"}
            replicas._write({"do": "event", "event": event}, b"")
        """,
    )
    run = workspace.train(spec("'echo hello; sleep 4'"))
    run.wait_for(Phase.FINISHED)
    assert "h2: a\ufffdb" in warnings(run)
    for command in ("logs", "status"):
        assert workspace.run(command, run.id).code == 0


def test_hosts_with_a_shared_folder_do_not_end_each_other_s_processes(workspace: Workspace, liar: HostCluster) -> None:
    folder = f"{SHARED}/one-home"
    for _ in range(2):
        run = workspace.train(spec("'echo hello from $(hostname); sleep 3'", more=f", folder: {folder}"))
        run.wait_started()
        run.wait_for(Phase.FINISHED)
        assert run.log("worker.0") == b"hello from h1\n"
        assert run.log("worker.1") == b"hello from h2\n"
